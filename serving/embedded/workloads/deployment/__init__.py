"""Deployments: rolling updates, standby replicas, and the status that kubectl reads."""
