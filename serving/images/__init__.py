"""Trained files → a reproducible OCI image in a content-addressed store, and from and to registries.

`documents` is pure; `capture`, `imports` and `store` touch the disk, `registry` the network. Knows no Kubernetes.
"""
