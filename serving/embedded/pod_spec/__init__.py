"""The spec of a Pod on one machine, and the rules for its supported fields. Pure.

The API server and the kubelet apply the same rules: at a write, and before a container starts.
"""
