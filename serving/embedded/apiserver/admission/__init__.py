"""Defaults and rules of the built-in kinds that no schema can state."""
