"""What the server answers about running Pods from the node agent's files and metrics: logs and resource usage."""
