"""Finds what Envoy would reject or answer with 503 before Envoy sees it."""

from collections.abc import Mapping

from serving.router.plan import RoutePlan


def missing_clusters(plan: RoutePlan) -> Mapping[str, tuple[str, ...]]:
    """Return, by address prefix, the clusters that the plan's routes name and the plan does not have."""
    known = {cluster.name for cluster in plan.clusters}
    wanted = {s.prefix: {piece.cluster for piece in s.ring} for s in plan.services}
    wanted |= {p.prefix: {p.cluster} for p in plan.probes}
    return {prefix: tuple(sorted(names - known)) for prefix, names in wanted.items() if names - known}
