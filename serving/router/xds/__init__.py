"""Incremental xDS: which resources Envoy has, what it may be sent next, and the gRPC stream that carries it."""
