"""`slipway up` and `down`, and the processes that they start and stop on this machine."""
