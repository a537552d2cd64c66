"""Manifests of others → ours. Pure: what has no equivalent is told to the caller, with its path; nothing is dropped silently."""
