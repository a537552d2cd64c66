"""A plan as Envoy's resources: what of it is new is rendered and encoded, and the routes are joined from pieces.

A change of one service among 1,000 must not cost the rendering of 1,000.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from serving.router.envoy import clusters, routes, weights, wire
from serving.router.envoy.weights import Weights
from serving.router.plan.route_table import RoutePlan
from serving.router.plan.service import Cluster, Probe, Service
from serving.settings import GatewaySettings

T = TypeVar("T")

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
class Needs:
    """What must be there before a route configuration is.

    `named` are clusters, `serving` those of them that must have endpoints, as they have weight in a route itself;
    `weights` are prefixes of weights, each of which has needs of its own.
    """

    named: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rendered:
    """What Envoy is to have otherwise than before, by name; None for what goes. From nothing, it is everything.

    Weights are by prefix, because one resource has them all. Route configurations never go.
    """

    clusters: Mapping[str, Resource | None] = field(default_factory=dict)
    endpoints: Mapping[str, Resource | None] = field(default_factory=dict)
    weights: Mapping[str, Weights | None] = field(default_factory=dict)
    routes: Mapping[str, tuple[Resource, Needs]] = field(default_factory=dict)


class Renderer:
    """Renders plans; has the pieces of all services that the routes are joined from."""

    def __init__(self, settings: GatewaySettings, activators: str) -> None:
        """Args: activators: the folder of the activator's sockets."""
        self._settings = settings
        self._activators = activators
        self._missing = NO_SERVICE.format(domain=settings.domain)
        self._services: dict[str, _Piece] = {}
        self._probes: dict[str, tuple[bytes, str]] = {}
        self._joined: set[str] = set()

    def render(self, plan: RoutePlan) -> Rendered:
        """Return what is to change; a change of weights or endpoints alone changes no route."""
        found = {
            name: None if cluster is None else self._cluster(cluster)
            for name, cluster in plan.clusters.items()
        }
        old = {prefix: self._services.get(prefix) for prefix in plan.services}
        for prefix, service in plan.services.items():
            _put(self._services, prefix, None if service is None else self._service(service))
        for prefix, probe in plan.probes.items():
            _put(self._probes, prefix, None if probe is None else self._probe(probe))
        new = {prefix: self._services.get(prefix) for prefix in plan.services}
        changed: dict[str, tuple[Resource, Needs]] = {}
        if "public" not in self._joined or any(_route(old[p]) != _route(new[p]) for p in old):
            changed["public"] = self._public()
        if "private" not in self._joined or plan.probes:
            changed["private"] = self._private()
        self._joined |= changed.keys()
        return Rendered(
            clusters={name: pair and pair[0] for name, pair in found.items()},
            endpoints={name: pair and pair[1] for name, pair in found.items()},
            weights=_differing(old.values(), new.values()),
            routes=changed,
        )

    def _public(self) -> tuple[Resource, Needs]:
        pieces = [self._services[prefix] for prefix in sorted(self._services)]
        leaves, hosts = b"".join(p.leaf for p in pieces), b"".join(p.host for p in pieces)
        needs = Needs(
            frozenset().union(*(p.named for p in pieces)),
            frozenset().union(*(p.serving for p in pieces)),
            frozenset(p.prefix for p in pieces if p.weights is not None),
        )
        return _routes("public", leaves, self._missing, hosts), needs

    def _private(self) -> tuple[Resource, Needs]:
        leaves = b"".join(self._probes[prefix][0] for prefix in sorted(self._probes))
        needs = Needs(frozenset(cluster for _, cluster in self._probes.values()))
        return _routes("private", leaves, NO_BACKEND, b""), needs

    def _probe(self, probe: Probe) -> tuple[bytes, str]:
        return routes.tree_entry(probe.prefix, routes.probe_route(probe)), probe.cluster

    def _cluster(self, cluster: Cluster) -> tuple[Resource, Resource]:
        endpoints = resource(clusters.load_assignment(cluster, self._activators))
        return (
            resource(clusters.cluster(cluster, self._settings)),
            endpoints if cluster.endpoints or cluster.on_demand else Resource(EMPTY, endpoints.content),
        )

    def _service(self, service: Service) -> "_Piece":
        host = {"virtual_hosts": [routes.virtual_host(service, self._settings)]}
        prefix = weights.key_prefix(service)
        return _Piece(
            host=wire.encode("RouteConfiguration", host),
            leaf=routes.tree_entry(service.prefix, routes.path_route(service, self._settings)),
            prefix=prefix,
            weights=weights.weights_of(service) if prefix else None,
            serving=frozenset(piece.cluster for piece in service.ring if piece.weight and not prefix),
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
    serving: frozenset[str]
    named: frozenset[str]


def _route(piece: _Piece | None) -> tuple[bytes, bytes] | None:
    return None if piece is None else (piece.host, piece.leaf)


def _differing(old: Iterable[_Piece | None], new: Iterable[_Piece | None]) -> dict[str, Weights | None]:
    before = {piece.prefix: piece.weights for piece in old if piece is not None and piece.prefix}
    after = {piece.prefix: piece.weights for piece in new if piece is not None and piece.prefix}
    return {p: after.get(p) for p in before | after if before.get(p) != after.get(p)}


def _put(table: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
