"""Simulated workloads: recorded traces, arrivals, replicas and objectives. Pure."""
