"""What Envoy must be told, and when, on its way from one plan to the next, so that no request meets what is missing.

Between an update and its acknowledgement Envoy may have what it had before or what was sent. A cluster that any of
those routes names, and a weight that any of them needs, must be in both. So clusters and endpoints come before the
weights that send requests to them, and both before the routes that name them; they go in reverse. Weights whose
clusters and routes are there wait for nothing.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from serving.router.envoy.render import EMPTY, Rendered, Resource
from serving.router.envoy.weights import Weights


@dataclass(frozen=True)
class View:
    """One of the things that Envoy may have: its clusters, those of them that have endpoints, and its weights."""

    clusters: AbstractSet[str]
    serving: AbstractSet[str]
    weights: Mapping[str, Weights]


NOTHING = View(frozenset(), frozenset(), {})


def view(clusters: Mapping[str, str], endpoints: Mapping[str, str], weights: Mapping[str, Weights]) -> View:
    """Return a view, of clusters and endpoints with their versions."""
    serving = {name for name, version in endpoints.items() if version != EMPTY and name in clusters}
    return View(clusters.keys(), serving, weights)


def may_route(target: Rendered, sent: View, accepted: View) -> bool:
    """Say whether the target's routes may be sent: Envoy has all that they need, and is not losing it."""
    serving = sent.serving & accepted.serving
    return (
        target.routed <= serving
        and all(target.named <= held.clusters for held in (sent, accepted))
        and all(
            prefix in held.weights and held.weights[prefix].needs <= serving
            for held in (sent, accepted)
            for prefix in target.weights
        )
    )


def weights_for(target: Rendered, sent: View, accepted: View, *, routed: bool) -> dict[str, Weights]:
    """Return the weights to send next: the target's, where their clusters have endpoints.

    Args:
        target: what Envoy is to have in the end.
        sent: what it has, if it has accepted everything.
        accepted: what it has, if it has accepted nothing since.
        routed: it has accepted the target's routes and weights, and so nothing needs other weights.
    """
    serving = sent.serving & accepted.serving
    old = sent.weights
    found = {
        prefix: old[prefix] if prefix in old and not weights.needs <= serving else weights
        for prefix, weights in target.weights.items()
    }
    return found if routed else {**old, **found}


def obsolete_clusters(target: Rendered, sent: AbstractSet[str], *, routed: bool) -> frozenset[str]:
    """Return the clusters to remove: none before nothing else needs them."""
    return frozenset(sent - target.clusters.keys()) if routed else frozenset()


def endpoints_for(
    target: Rendered, subscribed: AbstractSet[str], sent: Mapping[str, str], *, routed: bool
) -> dict[str, Resource]:
    """Return the endpoints to send next. A cluster does not lose its last one before nothing else needs it.

    Args:
        target: what Envoy is to have in the end.
        subscribed: the clusters whose endpoints it asks for.
        sent: versions that it has, if it has accepted everything.
        routed: it has accepted the target's routes and weights.
    """
    return {
        name: wanted
        for name, wanted in target.endpoints.items()
        if name in subscribed
        and sent.get(name) != wanted.version
        and (routed or name not in sent or wanted.version != EMPTY)
    }
