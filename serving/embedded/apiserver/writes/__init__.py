"""What a write makes of a stored object. Pure: no clock, no IO, no randomness."""
