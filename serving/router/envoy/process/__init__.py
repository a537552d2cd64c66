"""Envoy's process: its start, its supervision, and its end. The configuration of Envoy is in the parent."""
