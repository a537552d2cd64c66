"""Scaling policies on recorded load: simulated, and live on this machine."""
