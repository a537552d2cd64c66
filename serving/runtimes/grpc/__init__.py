"""The Open Inference Protocol v2 over gRPC, in the form in which Envoy's bridge sends it over HTTP/1.1."""
