"""The one node: its Node object, and the metrics of its agent."""
