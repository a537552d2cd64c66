"""The connection to the API: its configuration, its pool, and requests."""
