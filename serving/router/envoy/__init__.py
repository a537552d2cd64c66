"""Envoy: its configuration (bootstrap; clusters, endpoints, routes and weights from a route plan), its process.

Pure except `binary`, `process`, `supervision` and `admin`, which find Envoy's binary, start it, replace it when
it hangs, and use its admin socket.
"""
