"""EndpointSlices: which Pods a Service selects, and what is written of them."""
