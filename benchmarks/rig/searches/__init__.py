"""Searches of the tuner: replayed on measured surfaces, and live on this machine."""
