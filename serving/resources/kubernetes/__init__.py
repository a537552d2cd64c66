"""What several packages read of the objects of Kubernetes itself, beside their names and kinds. Pure."""
