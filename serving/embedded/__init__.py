"""One machine: the API server and the node agent. Never a distributed system."""
