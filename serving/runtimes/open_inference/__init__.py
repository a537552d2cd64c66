"""The Open Inference Protocol v2 over HTTP: paths, requests, responses, and the forms of tensors."""
