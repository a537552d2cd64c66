"""The model store of one machine: images unpacked into trees of files that replicas map into memory."""
