"""A package, so that its files can share a fixture of this scope."""
