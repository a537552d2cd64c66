"""Stored objects, the history of their changes, watches, pages of lists, and garbage collection."""
