"""`slipway demo`: its steps, load and output."""
