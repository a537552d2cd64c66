"""Measuring one spec for real: start it, load it, watch it, take it down. What is searched stands elsewhere."""
