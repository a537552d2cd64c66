"""One container: its environment, its volumes, its sandbox, and the shim that supervises it."""
