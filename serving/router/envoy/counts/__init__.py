"""Counts of requests, answers and tokens: what Envoy counts, what its module counts, and their values."""
