"""Everything that knows Envoy's field names: its bootstrap, and clusters, routes and weights rendered from a plan.

Pure, but for `process`, `admin` and `binary`, which start the Envoy process and talk to its admin socket.
"""
