"""One Pod: its lifecycle, its probes and its status."""
