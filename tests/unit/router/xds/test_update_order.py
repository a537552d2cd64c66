"""Single decisions; `test_server` walks through all of them."""

from serving.router.envoy.render import EMPTY, Needs
from serving.router.envoy.weights import Weights
from serving.router.xds.update_order import Order


def order(arms: str, up: str) -> Order:
    """An Envoy that has one service over the backends `arms`, of which those in `up` have endpoints."""
    found = Order()
    want(found, arms, up)
    for table in (found.clusters, found.endpoints, found.weights, found.routes):
        table.begin(table.target)
    return found


def want(found: Order, arms: str, up: str) -> None:
    """Those in `up` share the weight."""
    found.clusters.want(dict.fromkeys(arms, "1"))
    found.endpoints.want({name: "1" if name in up else EMPTY for name in arms})
    found.weights.want({arms: Weights(up.encode(), frozenset(up))})
    found.routes.want({"public": arms})
    found.needs = {"public": Needs(frozenset(arms), frozenset(), frozenset({arms}))}


def test_weight_goes_to_a_backend_only_when_envoy_has_its_endpoints() -> None:
    found = order("ab", "a")
    want(found, "ab", "ab")
    assert found.weights_to_send() == {}
    found.endpoints.send(found.endpoints_to_send("ab"))
    assert found.weights_to_send() == {}
    found.endpoints.answered(accepted=True)
    assert found.weights_to_send() == {"ab": Weights(b"ab", frozenset("ab"))}


def test_routes_wait_for_clusters_endpoints_and_weights_alike() -> None:
    found = order("a", "a")
    want(found, "ab", "ab")
    for table, sent in (
        (found.clusters, found.clusters_to_send),
        (found.endpoints, lambda: found.endpoints_to_send("ab")),
        (found.weights, found.weights_to_send),
    ):
        assert found.routes_to_send() == {}
        table.send(sent())
        assert found.routes_to_send() == {}
        table.answered(accepted=True)
    assert found.routes_to_send() == {"public": "ab"}


def test_a_cluster_keeps_its_last_endpoint_until_nothing_needs_it() -> None:
    found = order("ab", "ab")
    want(found, "ab", "b")
    assert found.endpoints_to_send("ab") == {}
    found.weights.send(found.weights_to_send())
    assert found.endpoints_to_send("ab") == {}
    found.weights.answered(accepted=True)
    assert found.endpoints_to_send("ab") == {"a": EMPTY}


def test_what_was_rejected_counts_as_neither_there_nor_gone() -> None:
    found = order("ab", "ab")
    found.endpoints.want({"a": "2"})
    found.endpoints.send(found.endpoints_to_send("ab"))
    found.endpoints.answered(accepted=False)
    assert found.endpoints_to_send("ab") == {"a": "2"}
    found.weights.want({"ab": Weights(b"a", frozenset("a"))})
    assert found.weights_to_send() == {}
