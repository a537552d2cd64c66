"""Sources of a target's load: metrics pages of gateways, activators, replicas and nodes, and a Prometheus."""
