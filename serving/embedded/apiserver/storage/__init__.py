"""The objects, their history, watches on it, pages of it, and garbage collection."""
