"""Envoy's process, and its configuration: the bootstrap, and the resources that are rendered from a route
plan (clusters, endpoints, routes, weights).

Pure except `binary`, `process`, `supervision` and `admin`, which find Envoy's binary, start it, replace it
when it hangs, and use its admin socket.
"""
