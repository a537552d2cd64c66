"""What the autoscaler keeps of each target: in memory, on disk, and from a Prometheus at the first start."""
