"""`slipway demo`: the steps, its load, and what it shows."""
