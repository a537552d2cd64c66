"""Single ordering decisions; `test_server` has the property test of all of them."""

from serving.router.envoy.render import Dependencies
from serving.router.envoy.resource import NO_ENDPOINTS
from serving.router.envoy.weights import Weights
from serving.router.xds.update_order import UpdateOrder


def order(arms: str, up: str) -> UpdateOrder:
    """Return the state of an Envoy with one service over `arms`; those in `up` have endpoints."""
    updates = UpdateOrder()
    set_target(updates, arms, up)
    for state in (updates.clusters, updates.endpoints, updates.weights, updates.routes):
        state.reset(state.target)
    return updates


def set_target(updates: UpdateOrder, arms: str, up: str) -> None:
    """Give the weight to the backends in `up`."""
    updates.clusters.set_target(dict.fromkeys(arms, "1"))
    updates.endpoints.set_target({name: "1" if name in up else NO_ENDPOINTS for name in arms})
    updates.weights.set_target({arms: Weights(up.encode(), frozenset(up))})
    updates.routes.set_target({"public": arms})
    updates.dependencies = {"public": Dependencies(frozenset(arms), frozenset(), frozenset({arms}))}


def test_weight_goes_to_a_backend_only_when_envoy_has_its_endpoints() -> None:
    updates = order("ab", "a")
    set_target(updates, "ab", "ab")
    assert updates.weights_to_send() == {}
    updates.endpoints.mark_sent(updates.endpoints_to_send("ab"))
    assert updates.weights_to_send() == {}
    updates.endpoints.mark_answered(accepted=True)
    assert updates.weights_to_send() == {"ab": Weights(b"ab", frozenset("ab"))}


def test_routes_wait_for_clusters_endpoints_and_weights_alike() -> None:
    updates = order("a", "a")
    set_target(updates, "ab", "ab")
    for state, to_send in (
        (updates.clusters, updates.clusters_to_send),
        (updates.endpoints, lambda: updates.endpoints_to_send("ab")),
        (updates.weights, updates.weights_to_send),
    ):
        assert updates.routes_to_send() == {}
        state.mark_sent(to_send())
        assert updates.routes_to_send() == {}
        state.mark_answered(accepted=True)
    assert updates.routes_to_send() == {"public": "ab"}


def test_a_cluster_keeps_its_last_endpoint_while_something_needs_it() -> None:
    updates = order("ab", "ab")
    set_target(updates, "ab", "b")
    assert updates.endpoints_to_send("ab") == {}
    updates.weights.mark_sent(updates.weights_to_send())
    assert updates.endpoints_to_send("ab") == {}
    updates.weights.mark_answered(accepted=True)
    assert updates.endpoints_to_send("ab") == {"a": NO_ENDPOINTS}


def test_a_rejected_resource_counts_as_neither_present_nor_absent() -> None:
    updates = order("ab", "ab")
    updates.endpoints.set_target({"a": "2"})
    updates.endpoints.mark_sent(updates.endpoints_to_send("ab"))
    updates.endpoints.mark_answered(accepted=False)
    assert updates.endpoints_to_send("ab") == {"a": "2"}
    updates.weights.set_target({"ab": Weights(b"a", frozenset("a"))})
    assert updates.weights_to_send() == {}
