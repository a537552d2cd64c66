"""Keeps processes apart: users, namespaces, filters of system calls, and cgroups."""
