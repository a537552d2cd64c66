"""The gateway: RoutePlan and Envoy configuration (pure), and the process that applies them."""
