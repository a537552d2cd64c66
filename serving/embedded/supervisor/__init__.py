"""Keeps the components of `slipway up` running."""
