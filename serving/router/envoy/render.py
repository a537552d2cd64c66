"""A whole plan as the three files that Envoy watches, each service rendered and encoded once.

A change of one service among 1,000 must not cost the rendering of 1,000: rendered pieces are kept as long
as the plan's (frozen) values stay equal, and the files are joined from them.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from serving.router.envoy import clusters, routes, wire
from serving.router.plan import Cluster, Probe, RoutePlan, Service
from serving.settings import GatewaySettings

T = TypeVar("T", bound=Hashable)

NO_SERVICE = "no service has this address: use NAME.NAMESPACE.{domain} or /NAMESPACE/NAME/v2/..."
NO_BACKEND = "no backend has this address: use /NAMESPACE/BACKEND/..."


@dataclass(frozen=True)
class File:
    """One file: `version` is the digest of what it says, and what Envoy reports once it has accepted it."""

    version: str
    content: bytes


@dataclass(frozen=True)
class Rendered:
    """Clusters still by name, because their file is written in phases; route files as they will be."""

    clusters: Mapping[str, bytes]
    serving: frozenset[str]
    routed: frozenset[str]
    public: File
    private: File


class Renderer:
    """Renders plans; remembers pieces of the last one."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._clusters: _Pieces[Cluster, bytes] = _Pieces(
            lambda c: wire.encode("Any", clusters.cluster(c, settings))
        )
        self._probes: _Pieces[Probe, bytes] = _Pieces(lambda p: wire.encode("OnMatch", routes.probe_route(p)))
        self._services: _Pieces[Service, tuple[bytes, bytes]] = _Pieces(self._service)

    def render(self, plan: RoutePlan) -> Rendered:
        """Return the files' contents for a plan."""
        services = self._services.of(plan.services)
        probes = self._probes.of(plan.probes)
        hosts = [host for host, _ in services]
        leaves = [(service.prefix, leaf) for service, (_, leaf) in zip(plan.services, services, strict=True)]
        private = [(probe.prefix, leaf) for probe, leaf in zip(plan.probes, probes, strict=True)]
        missing = NO_SERVICE.format(domain=self._settings.domain)
        pieces = self._clusters.of(plan.clusters)
        return Rendered(
            clusters={c.name: piece for c, piece in zip(plan.clusters, pieces, strict=True)},
            serving=frozenset(c.name for c in plan.clusters if c.endpoints),
            routed=frozenset(piece.cluster for service in plan.services for piece in service.ring),
            public=route_file("public", [*hosts, routes.by_path(leaves, missing)]),
            private=route_file("private", [routes.by_path(private, NO_BACKEND)]),
        )

    def _service(self, service: Service) -> tuple[bytes, bytes]:
        host = routes.virtual_host(service, self._settings)
        path = routes.path_route(service, self._settings)
        return wire.encode("VirtualHost", host), wire.encode("OnMatch", path)


def file(resources: Iterable[bytes]) -> File:
    """Return a discovery response of encoded resources; the same resources have the same version."""
    body = list(resources)
    digest = hashlib.blake2b(digest_size=12)
    for resource in body:
        digest.update(resource)
    version = digest.hexdigest()
    return File(version, wire.encode("DiscoveryResponse", {"version_info": version, "resources": body}))


def route_file(name: str, virtual_hosts: Iterable[wire.Json | bytes]) -> File:
    """Return the file of one route configuration."""
    return file([wire.encode("Any", routes.route_configuration(name, virtual_hosts))])


def cluster_file(found: Mapping[str, bytes]) -> File:
    """Return the clusters' file, in the order of their names."""
    return file(found[name] for name in sorted(found))


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


R = TypeVar("R")


class _Pieces(Generic[T, R]):
    """Rendered pieces of the last list of values."""

    def __init__(self, render: Callable[[T], R]) -> None:
        self._render = render
        self._known: dict[T, R] = {}

    def of(self, values: Iterable[T]) -> list[R]:
        known = self._known
        fresh = {value: known[value] if value in known else self._render(value) for value in values}
        self._known = fresh
        return list(fresh.values())
