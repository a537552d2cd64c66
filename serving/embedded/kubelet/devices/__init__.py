"""The GPUs of the machine: their usage, and their shared use by containers."""
