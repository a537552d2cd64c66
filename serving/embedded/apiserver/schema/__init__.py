"""Structural schemas of the kinds, and what they do to an object: validation, pruning and defaults."""
