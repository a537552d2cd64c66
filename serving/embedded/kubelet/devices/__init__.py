"""Processor cores and GPUs that containers are given."""
