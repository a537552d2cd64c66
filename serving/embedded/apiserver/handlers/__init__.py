"""From an HTTP request to a read or a write, and its response."""
