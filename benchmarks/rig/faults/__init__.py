"""Faults of the running product under load, and what clients and operators see of them."""
