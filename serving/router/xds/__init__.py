"""Incremental xDS: the resources that Envoy has, the order of updates, and the gRPC stream."""
