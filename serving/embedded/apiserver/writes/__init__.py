"""Computes the stored object after a write. Pure: no clock, no IO, no randomness."""
