"""Logs and resource usage of Pods, from the files and metrics of the node agent."""
