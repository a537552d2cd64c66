"""The embedded API server: the Kubernetes API over SQLite, for one machine.

Requests enter in `handlers`, writes are decided in `writes`, objects are kept in `storage`.
"""
