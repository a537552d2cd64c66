"""The state that the autoscaler keeps of each target: in memory, on disk, and at first from a Prometheus."""
