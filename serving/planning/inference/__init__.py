"""The planner of an Inference: revisions, the hash ring, children and status. Pure."""
