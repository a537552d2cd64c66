"""Trained files to OCI image to model store."""
