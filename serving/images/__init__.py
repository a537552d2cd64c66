"""Trained files → a reproducible OCI image in a content-addressed store, and from and to registries.

`documents` is pure; `building`, `imports` and `store` use the disk, `registry` the network. Independent of
Kubernetes.
"""
