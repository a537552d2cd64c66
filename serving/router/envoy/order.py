"""What must be in which file while Envoy goes from one plan to the next, so that no request meets what is missing.

Envoy may have each file as it is, or as it was when it accepted it last. A cluster that any of those routes names, and
a weight that any of them needs, must be in both. So clusters come before the weights that send requests to them, and
both before the routes that name them; they go in reverse. Weights whose clusters and routes are there wait for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.router.envoy.render import Rendered
from serving.router.envoy.weights import Weights


@dataclass(frozen=True)
class Clusters:
    """A clusters' file: encoded clusters by name, and which of them have endpoints."""

    pieces: Mapping[str, bytes]
    serving: frozenset[str]


@dataclass(frozen=True)
class Held:
    """What Envoy may have: the clusters' and the weights' files as they are, and as it accepted them last."""

    written: Clusters
    accepted: Clusters
    weights_written: Mapping[str, Weights]
    weights_accepted: Mapping[str, Weights]


NOTHING = Clusters({}, frozenset())


def may_route(target: Rendered, held: Held) -> bool:
    """Say whether the target's routes may be written: Envoy has all that they need, and is not losing it."""
    serving = held.written.serving & held.accepted.serving
    return (
        target.routed <= serving
        and all(target.named <= clusters.pieces.keys() for clusters in (held.written, held.accepted))
        and all(
            prefix in weights and weights[prefix].needs <= serving
            for weights in (held.weights_written, held.weights_accepted)
            for prefix in target.weights
        )
    )


def weights_for(target: Rendered, held: Held, *, routed: bool) -> dict[str, Weights]:
    """Return the weights to write next: the target's, where their clusters have endpoints.

    Args:
        target: what Envoy is to have in the end.
        held: what it may have.
        routed: it has accepted the target's routes and weights, and so nothing needs other weights.
    """
    serving = held.written.serving & held.accepted.serving
    old = held.weights_written
    found = {
        prefix: old[prefix] if prefix in old and not weights.needs <= serving else weights
        for prefix, weights in target.weights.items()
    }
    return found if routed else {**old, **found}


def clusters_for(target: Rendered, written: Clusters, *, routed: bool) -> Clusters:
    """Return the clusters to write next.

    Args:
        target: what Envoy is to have in the end.
        written: the file as it is.
        routed: Envoy has accepted the target's routes and weights, and so nothing needs another cluster.
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
