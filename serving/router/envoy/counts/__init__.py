"""Counts of requests, answers and tokens: those of Envoy, those of its module, and their values."""
