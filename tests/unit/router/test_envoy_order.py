"""Random walks of plans against an Envoy that reads its files late: no route it has may miss a cluster it has."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from serving.router.envoy.order import NOTHING, Clusters, clusters_for, may_route
from serving.router.envoy.render import File, Rendered

NAMES = "abcd"


def target(routed: frozenset[str], empty: frozenset[str], idle: frozenset[str]) -> Rendered:
    """Services name `routed`; `empty` have no endpoint; probes name `idle` besides."""
    names = routed | empty | idle
    routes = File(",".join(sorted(routed)), b"")
    return Rendered(
        clusters={name: f"{name} {name in empty}".encode() for name in names},
        serving=names - empty, routed=routed - empty, named=names, public=routes, private=routes,
    )  # fmt: skip


EMPTY = target(frozenset(), frozenset(), frozenset())
_some = st.frozensets(st.sampled_from(NAMES))
_targets = st.builds(target, _some, _some, _some)


@dataclass
class Walk:
    """What is in the files, and what Envoy has; both of a route file are its plan."""

    written: Clusters = NOTHING
    accepted: Clusters = NOTHING
    routes: Rendered = EMPTY
    envoy_routes: Rendered = EMPTY

    def advance(self, aim: Rendered) -> None:
        if may_route(aim, self.written, self.accepted):
            self.routes = aim
        if self.written is self.accepted:
            wanted = clusters_for(aim, self.written, routed=self.envoy_routes is self.routes is aim)
            if wanted.pieces != self.written.pieces:
                self.written = wanted

    def whole(self) -> bool:
        return all(
            routes.routed <= clusters.serving and routes.named <= clusters.pieces.keys()
            for routes in (self.routes, self.envoy_routes)
            for clusters in (self.written, self.accepted)
        )


@given(st.lists(st.one_of(_targets, st.sampled_from(["clusters", "routes"])), max_size=40))
def test_no_route_that_envoy_may_have_names_a_cluster_that_it_may_lack(steps: list[Rendered | str]) -> None:
    walk, aim = Walk(), EMPTY
    for step in steps:
        if step == "clusters":
            walk.accepted = walk.written
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
    for _ in range(3):
        walk.accepted, walk.envoy_routes = walk.written, walk.routes
        walk.advance(aims[-1])
    assert walk.envoy_routes is aims[-1]
    assert walk.written.pieces == aims[-1].clusters


def test_routes_whose_clusters_are_there_wait_for_no_endpoint() -> None:
    before = target(frozenset("ab"), frozenset(), frozenset())
    held = Clusters(before.clusters, before.serving)
    churned = Clusters({**before.clusters, "c": b"new endpoint"}, before.serving | {"c"})
    assert may_route(target(frozenset("a"), frozenset(), frozenset("b")), churned, held)
