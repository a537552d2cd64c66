"""Limits and usage of processor and memory: cgroups and /proc."""
