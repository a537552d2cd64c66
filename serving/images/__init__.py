"""Trained files → a reproducible OCI image in a content-addressed store.

`layers`, `oci` and `manifest` are pure; `source`, `build` and `store` touch the disk. Knows no Kubernetes.
"""
