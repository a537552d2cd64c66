"""RoutePlan → Envoy's JSON. Pure.

Everything that knows Envoy's field names is in this package, with golden files beside its tests. Public:
`bootstrap` (immutable after start), `clusters` and `routes` (the files that change), `check` (consistency).
"""
