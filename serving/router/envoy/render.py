"""A whole plan as Envoy's resources, each service rendered and encoded once.

A change of one service among 1,000 must not cost the rendering of 1,000: rendered pieces are kept as long
as the plan's (frozen) values stay the same, and the routes are joined from them.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from serving.router.envoy import clusters, routes, weights, wire
from serving.router.envoy.weights import Weights
from serving.router.plan import Cluster, Probe, RoutePlan, Service
from serving.settings import GatewaySettings

T = TypeVar("T")
R = TypeVar("R")

NO_SERVICE = "no service has this address: use NAME.NAMESPACE.{domain} or /NAMESPACE/NAME/v2/..."
NO_BACKEND = "no backend has this address: use /NAMESPACE/BACKEND/..."


EMPTY = "empty"
"""The version of endpoints without any, so that a version alone tells whether a cluster can serve."""
_DIGEST_BYTES = 12


@dataclass(frozen=True)
class Resource:
    """Something that Envoy has by name; what it says is its version's digest."""

    version: str
    content: bytes


@dataclass(frozen=True)
class Rendered:
    """A plan's resources by name; weights by prefix, because one resource has them all.

    `serving` are the clusters with endpoints, `routed` those that have weight, `named` those that any route names.
    """

    clusters: Mapping[str, Resource]
    endpoints: Mapping[str, Resource]
    weights: Mapping[str, Weights]
    routes: Mapping[str, Resource]
    serving: frozenset[str]
    routed: frozenset[str]
    named: frozenset[str]


class Renderer:
    """Renders plans; remembers pieces of the last one."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._missing = NO_SERVICE.format(domain=settings.domain)
        self._clusters: _Pieces[Cluster, tuple[Resource, Resource]] = _Pieces(self._cluster)
        self._probes: _Pieces[Probe, bytes] = _Pieces(
            lambda p: routes.tree_entry(p.prefix, routes.probe_route(p))
        )
        self._services: _Pieces[Service, _Piece] = _Pieces(self._service)
        self._routes: dict[str, tuple[tuple[bytes, bytes], Resource]] = {}

    def render(self, plan: RoutePlan) -> Rendered:
        """Return a plan's resources."""
        services = self._services.of(plan.services)
        hosts = b"".join(piece.host for piece in services)
        leaves = b"".join(piece.leaf for piece in services)
        probes = b"".join(self._probes.of(plan.probes))
        pieces = self._clusters.of(plan.clusters)
        return Rendered(
            clusters={c.name: piece for c, (piece, _) in zip(plan.clusters, pieces, strict=True)},
            endpoints={c.name: piece for c, (_, piece) in zip(plan.clusters, pieces, strict=True)},
            weights={piece.prefix: piece.weights for piece in services if piece.weights is not None},
            routes={
                "public": self._joined("public", leaves, self._missing, hosts),
                "private": self._joined("private", probes, NO_BACKEND, b""),
            },
            serving=frozenset(c.name for c in plan.clusters if c.endpoints),
            routed=frozenset().union(*(piece.routed for piece in services)),
            named=frozenset(p.cluster for p in plan.probes).union(*(piece.named for piece in services)),
        )

    def _joined(self, name: str, leaves: bytes, missing: str, hosts: bytes) -> Resource:
        """Join routes; most changes are of endpoints or weights, and to compare is cheaper than to digest."""
        known = self._routes.get(name)
        if known is not None and known[0] == (leaves, hosts):
            return known[1]
        found = _routes(name, leaves, missing, hosts)
        self._routes[name] = (leaves, hosts), found
        return found

    def _cluster(self, cluster: Cluster) -> tuple[Resource, Resource]:
        endpoints = resource(clusters.load_assignment(cluster))
        return (
            resource(clusters.cluster(cluster, self._settings)),
            endpoints if cluster.endpoints else Resource(EMPTY, endpoints.content),
        )

    def _service(self, service: Service) -> "_Piece":
        host = {"virtual_hosts": [routes.virtual_host(service, self._settings)]}
        prefix = weights.key_prefix(service)
        return _Piece(
            host=wire.encode("RouteConfiguration", host),
            leaf=routes.tree_entry(service.prefix, routes.path_route(service, self._settings)),
            prefix=prefix,
            weights=weights.weights_of(service) if prefix else None,
            routed=frozenset(piece.cluster for piece in service.ring if piece.weight),
            named=frozenset(piece.cluster for piece in service.ring),
        )


def resource(message: Mapping[str, Any]) -> Resource:
    """Return a message, which has its `@type`, with its digest for a version."""
    return resource_of(wire.encode("Any", message))


def resource_of(content: bytes) -> Resource:
    """Return an encoded message with its digest for a version."""
    return Resource(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest(), content)


def _routes(name: str, leaves: bytes, missing: str, hosts: bytes) -> Resource:
    """Return one route configuration.

    Args:
        name: the configuration's.
        leaves: encoded entries of the tree of paths, one after the other.
        missing: the message of its 404.
        hosts: encoded virtual hosts, each as a field of the configuration.
    """
    by_path = {"virtual_hosts": [routes.by_path(leaves, missing)]}
    return resource(routes.route_configuration(name, hosts + wire.encode("RouteConfiguration", by_path)))


@dataclass(frozen=True)
class _Piece:
    """What one service adds."""

    host: bytes
    leaf: bytes
    prefix: str
    weights: Weights | None
    routed: frozenset[str]
    named: frozenset[str]


class _Pieces(Generic[T, R]):
    """What was rendered for the last list of values.

    They are frozen, and known by identity: to compare 1,000 services costs more than to render one.
    """

    def __init__(self, render: Callable[[T], R]) -> None:
        self._render = render
        self._known: dict[int, tuple[T, R]] = {}

    def of(self, values: Iterable[T]) -> list[R]:
        known = self._known
        fresh = {id(value): known.get(id(value)) or (value, self._render(value)) for value in values}
        self._known = fresh
        return [piece for _, piece in fresh.values()]
