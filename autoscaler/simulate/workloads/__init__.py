"""Simulated workloads: recorded traces, synthetic loads, arrivals, replicas and objectives. Pure."""
