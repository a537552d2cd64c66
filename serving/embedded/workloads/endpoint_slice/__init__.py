"""EndpointSlices: the Pods that a Service selects, with their addresses, ports and conditions."""
