"""Converts manifests of other projects. Pure: fields without an equivalent are reported with their paths."""
