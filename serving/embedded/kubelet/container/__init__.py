"""One container: what it is started with, the process that supervises it, its sandbox and its volumes."""
