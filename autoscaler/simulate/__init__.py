"""Scaling policies against recorded load: traces, replicas that start slowly, late readings, scores. Pure."""
