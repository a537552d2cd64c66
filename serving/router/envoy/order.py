"""Which clusters must be there while Envoy goes from one plan to the next, so that no request meets a missing one.

Envoy may have the routes and the clusters of the files as they are, or those that it accepted last. A cluster
that any of those routes names must be in both. So clusters come before the routes that name them and go after;
and routes whose clusters are there already wait for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.router.envoy.render import Rendered


@dataclass(frozen=True)
class Clusters:
    """A clusters' file: encoded clusters by name, and which of them have endpoints."""

    pieces: Mapping[str, bytes]
    serving: frozenset[str]


NOTHING = Clusters({}, frozenset())


def may_route(target: Rendered, written: Clusters, accepted: Clusters) -> bool:
    """Say whether the target's routes may be written: Envoy has all that they need, and is not losing it."""
    return all(
        target.routed <= held.serving and target.named <= held.pieces.keys() for held in (written, accepted)
    )


def clusters_for(target: Rendered, written: Clusters, *, routed: bool) -> Clusters:
    """Return the clusters to write next.

    Args:
        target: what Envoy is to have in the end.
        written: the file as it is.
        routed: Envoy has accepted the target's routes, and so no route needs anything else.
    """
    if routed:
        return Clusters(target.clusters, target.serving)
    kept = {
        name: piece
        for name, piece in written.pieces.items()
        if name not in target.clusters or (name in written.serving and name not in target.serving)
    }
    if not kept:
        return Clusters(target.clusters, target.serving)
    return Clusters({**target.clusters, **kept}, target.serving | (written.serving & kept.keys()))
