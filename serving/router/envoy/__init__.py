"""RoutePlan → Envoy's configuration. Pure.

Everything that knows Envoy's field names is in this package, with golden files beside its tests. Public:
`bootstrap` (immutable after start), `render` (the files that change, from `clusters` and `routes`), `wire`
(their binary form), `check` (consistency).
"""
