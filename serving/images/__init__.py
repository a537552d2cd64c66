"""Trained files → a reproducible OCI image in a content-addressed store.

`layers`, `oci`, `manifest`, `image` and `signing` are pure; `source`, `build` and `store` touch the disk, `registry` the
network. Knows no Kubernetes.
"""
