"""Envoy's configuration: the bootstrap, and clusters, routes and weights rendered from a route plan.

Pure except `process`, `admin` and `binary`, which start Envoy and use its admin socket.
"""
