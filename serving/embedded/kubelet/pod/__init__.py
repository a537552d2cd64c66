"""One Pod: its life from the first start to the deletion, its probes and its status."""
