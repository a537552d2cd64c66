"""Single decisions; `test_delivery` walks through all of them."""

from serving.router.envoy.order import NOTHING, View, endpoints_for, may_route, weights_for
from serving.router.envoy.render import EMPTY, Rendered, Resource
from serving.router.envoy.weights import Weights


def target(arms: str, up: str) -> Rendered:
    """One service over the backends `arms`, of which those in `up` have endpoints and share the weight."""
    names, serving = frozenset(arms), frozenset(up)
    return Rendered(
        clusters={name: Resource("1", b"") for name in names},
        endpoints={name: Resource("1" if name in up else EMPTY, b"") for name in names},
        weights={arms: Weights(up.encode(), serving)} if up else {},
        routes={}, serving=serving, routed=serving, named=names,
    )  # fmt: skip


def seen(aim: Rendered, weights: Rendered) -> View:
    return View(aim.clusters.keys(), aim.serving, weights.weights)


def test_weight_goes_to_a_backend_only_when_envoy_has_its_endpoints() -> None:
    before, after = target("ab", "a"), target("ab", "ab")
    sent, accepted = seen(after, before), seen(before, before)
    assert weights_for(after, sent, accepted, routed=False) == before.weights
    assert weights_for(after, sent, sent, routed=False) == after.weights


def test_routes_wait_for_clusters_endpoints_and_weights_alike() -> None:
    aim = target("ab", "ab")
    whole = seen(aim, aim)
    assert may_route(aim, whole, whole)
    for lacking in (NOTHING, seen(aim, target("ab", "")), seen(target("ab", "a"), aim)):
        assert not may_route(aim, whole, lacking)
        assert not may_route(aim, lacking, whole)


def test_a_cluster_keeps_its_last_endpoint_until_nothing_needs_it() -> None:
    aim, had = target("ab", "b"), {"a": "1", "b": "1"}
    assert endpoints_for(aim, {"a", "b"}, had, routed=False) == {}
    assert endpoints_for(aim, {"a", "b"}, had, routed=True).keys() == {"a"}
