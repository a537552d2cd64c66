"""Random walks of plans against an Envoy that reads its files late: no route it has may miss a cluster it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from serving.router.envoy.order import NOTHING, Clusters, Held, clusters_for, may_route, weights_for
from serving.router.envoy.render import File, Rendered
from serving.router.envoy.weights import Weights

NAMES = "abcd"


def target(routed: frozenset[str], empty: frozenset[str], idle: frozenset[str]) -> Rendered:
    """One service over the backends `routed`; those of them in `empty` have no endpoint, and so no weight.

    Probes name `idle` besides.
    """
    names = routed | empty | idle
    prefix = "".join(sorted(routed))
    weights = (
        {prefix: Weights(f"{sorted(routed - empty)}".encode(), routed - empty)} if routed - empty else {}
    )
    routes = File(prefix if weights else "", b"")
    return Rendered(
        clusters={name: f"{name} {name in empty}".encode() for name in names},
        weights=weights, serving=names - empty, routed=routed - empty, named=names, public=routes, private=routes,
    )  # fmt: skip


EMPTY = target(frozenset(), frozenset(), frozenset())
_some = st.frozensets(st.sampled_from(NAMES))
_targets = st.builds(target, _some, _some, _some)


@dataclass
class Walk:
    """What is in the files, and what Envoy has; both of a route file are its plan."""

    written: Clusters = NOTHING
    accepted: Clusters = NOTHING
    weights: Mapping[str, Weights] = field(default_factory=dict)
    envoy_weights: Mapping[str, Weights] = field(default_factory=dict)
    routes: Rendered = EMPTY
    envoy_routes: Rendered = EMPTY

    def advance(self, aim: Rendered) -> None:
        held = Held(self.written, self.accepted, self.weights, self.envoy_weights)
        routed = (
            self.envoy_routes is self.routes is aim
            and self.weights is self.envoy_weights
            and aim.weights.items() <= self.weights.items()
        )
        shares = weights_for(aim, held, routed=routed)
        if shares != self.weights:
            self.weights = shares
        if may_route(aim, Held(self.written, self.accepted, self.weights, self.envoy_weights)):
            self.routes = aim
        if self.written is self.accepted:
            wanted = clusters_for(aim, self.written, routed=routed)
            if wanted.pieces != self.written.pieces:
                self.written = wanted

    def whole(self) -> bool:
        return all(
            routes.named <= clusters.pieces.keys()
            and all(p in weights and weights[p].needs <= clusters.serving for p in routes.weights)
            for routes in (self.routes, self.envoy_routes)
            for clusters in (self.written, self.accepted)
            for weights in (self.weights, self.envoy_weights)
        )


@given(st.lists(st.one_of(_targets, st.sampled_from(["clusters", "weights", "routes"])), max_size=40))
def test_no_route_that_envoy_may_have_meets_a_cluster_or_a_weight_that_it_may_lack(
    steps: list[Rendered | str],
) -> None:
    walk, aim = Walk(), EMPTY
    for step in steps:
        if step == "clusters":
            walk.accepted = walk.written
        elif step == "weights":
            walk.envoy_weights = walk.weights
        elif step == "routes":
            walk.envoy_routes = walk.routes
        elif isinstance(step, Rendered):
            aim = step
        walk.advance(aim)
        assert walk.whole()


@given(st.lists(_targets, min_size=1, max_size=10))
def test_envoy_ends_with_exactly_the_last_aim(aims: list[Rendered]) -> None:
    walk = Walk()
    for aim in aims:
        walk.advance(aim)
    for _ in range(5):
        walk.accepted, walk.envoy_weights, walk.envoy_routes = walk.written, walk.weights, walk.routes
        walk.advance(aims[-1])
    assert walk.envoy_routes is aims[-1]
    assert walk.written.pieces == aims[-1].clusters
    assert walk.weights == aims[-1].weights


def test_routes_whose_clusters_are_there_wait_for_no_endpoint() -> None:
    before = target(frozenset("ab"), frozenset(), frozenset())
    held = Clusters(before.clusters, before.serving)
    churned = Clusters({**before.clusters, "c": b"new endpoint"}, before.serving | {"c"})
    aim = target(frozenset("a"), frozenset(), frozenset("b"))
    assert may_route(aim, Held(churned, held, aim.weights, aim.weights))


def test_weight_goes_to_a_backend_only_when_envoy_has_its_endpoints() -> None:
    before, after = (target(frozenset("ab"), frozenset(empty), frozenset()) for empty in ("b", ""))
    had, has = (Clusters(aim.clusters, aim.serving) for aim in (before, after))
    waiting = Held(has, had, before.weights, before.weights)
    assert weights_for(after, waiting, routed=False) == before.weights
    assert weights_for(after, Held(has, has, before.weights, before.weights), routed=False) == after.weights
