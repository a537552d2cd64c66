"""The gateway, from Routes to Envoy's configuration, and the activator."""
