"""EndpointSlices: which Pods a Service selects, and their addresses, ports and conditions."""
