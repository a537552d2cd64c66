"""The spec of a Pod as one machine reads it, and the rules for what it supports. Pure.

The API server and the kubelet apply the same rules: at a write, and before a container starts.
"""
