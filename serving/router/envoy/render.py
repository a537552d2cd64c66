"""A whole plan as the four files that Envoy watches, each service rendered and encoded once.

A change of one service among 1,000 must not cost the rendering of 1,000: rendered pieces are kept as long
as the plan's (frozen) values stay the same, and the files are joined from them.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from serving.router.envoy import clusters, routes, weights, wire
from serving.router.envoy.weights import Weights
from serving.router.plan import Cluster, Probe, RoutePlan, Service
from serving.settings import GatewaySettings

T = TypeVar("T")
R = TypeVar("R")

NO_SERVICE = "no service has this address: use NAME.NAMESPACE.{domain} or /NAMESPACE/NAME/v2/..."
NO_BACKEND = "no backend has this address: use /NAMESPACE/BACKEND/..."


@dataclass(frozen=True)
class File:
    """One file: `version` is the digest of what it says, and what Envoy reports once it has accepted it."""

    version: str
    content: bytes


@dataclass(frozen=True)
class Rendered:
    """Clusters by name and weights by prefix, because their files are written in phases; route files as they will be.

    `serving` are the clusters with endpoints, `routed` those that have weight, `named` those that any route names.
    """

    clusters: Mapping[str, bytes]
    weights: Mapping[str, Weights]
    serving: frozenset[str]
    routed: frozenset[str]
    named: frozenset[str]
    public: File
    private: File


class Renderer:
    """Renders plans; remembers pieces of the last one."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._missing = NO_SERVICE.format(domain=settings.domain)
        self._clusters: _Pieces[Cluster, bytes] = _Pieces(
            lambda c: wire.encode("Any", clusters.cluster(c, settings))
        )
        self._probes: _Pieces[Probe, bytes] = _Pieces(
            lambda p: routes.tree_entry(p.prefix, routes.probe_route(p))
        )
        self._services: _Pieces[Service, _Piece] = _Pieces(self._service)

    def render(self, plan: RoutePlan) -> Rendered:
        """Return the files' contents for a plan."""
        services = self._services.of(plan.services)
        hosts = b"".join(piece.host for piece in services)
        leaves = b"".join(piece.leaf for piece in services)
        probes = b"".join(self._probes.of(plan.probes))
        pieces = self._clusters.of(plan.clusters)
        return Rendered(
            clusters={c.name: piece for c, piece in zip(plan.clusters, pieces, strict=True)},
            weights={piece.prefix: piece.weights for piece in services if piece.weights is not None},
            serving=frozenset(c.name for c in plan.clusters if c.endpoints),
            routed=frozenset().union(*(piece.routed for piece in services)),
            named=frozenset(probe.cluster for probe in plan.probes).union(
                *(piece.named for piece in services)
            ),
            public=route_file("public", leaves, self._missing, hosts),
            private=route_file("private", probes, NO_BACKEND),
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


def file(resources: Iterable[bytes]) -> File:
    """Return a discovery response of encoded resources; the same resources have the same version."""
    body = list(resources)
    digest = hashlib.blake2b(digest_size=12)
    for resource in body:
        digest.update(resource)
    version = digest.hexdigest()
    return File(version, wire.encode("DiscoveryResponse", {"version_info": version, "resources": body}))


def route_file(name: str, leaves: bytes, missing: str, hosts: bytes = b"") -> File:
    """Return the file of one route configuration.

    Args:
        name: the configuration's.
        leaves: encoded entries of the tree of paths, one after the other.
        missing: the message of its 404.
        hosts: encoded virtual hosts, each as a field of the configuration.
    """
    by_path = {"virtual_hosts": [routes.by_path(leaves, missing)]}
    whole = routes.route_configuration(name, hosts + wire.encode("RouteConfiguration", by_path))
    return file([wire.encode("Any", whole)])


def cluster_file(found: Mapping[str, bytes]) -> File:
    """Return the clusters' file, in the order of their names."""
    return file(found[name] for name in sorted(found))


def weights_file(found: Mapping[str, Weights]) -> File:
    """Return the weights' file, in the order of their prefixes."""
    return file([weights.resource(found[prefix].entries for prefix in sorted(found))])


def contents(data: bytes) -> tuple[str, list[bytes]]:
    """Return version and encoded resources of a file.

    Raises:
        wire.Malformed: it is none.
    """
    version, resources = "", []
    for number, content in wire.parts(data):
        if not isinstance(content, bytes):
            raise wire.Malformed("a number in a discovery response")
        if number == 1:
            version = content.decode()
        else:
            resources.append(content)
    return version, resources


@dataclass(frozen=True)
class _Piece:
    """What one service adds to each file."""

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
