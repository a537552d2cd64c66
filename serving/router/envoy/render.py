"""A whole plan as the three files that Envoy watches, each service rendered once.

A change of one service among 1,000 must not cost the rendering of 1,000: rendered pieces are kept as long
as the plan's (frozen) values stay equal, and the files are joined from them.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

from serving.router.envoy import clusters, routes
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
            lambda c: orjson.dumps(clusters.cluster(c, settings))
        )
        self._probes: _Pieces[Probe, bytes] = _Pieces(lambda p: orjson.dumps(routes.probe_route(p)))
        self._services: _Pieces[Service, tuple[orjson.Fragment, orjson.Fragment]] = _Pieces(self._service)

    def render(self, plan: RoutePlan) -> Rendered:
        """Return the files' contents for a plan."""
        services = self._services.of(plan.services)
        probes = self._probes.of(plan.probes)
        hosts = [host for host, _ in services]
        leaves = [(service.prefix, leaf) for service, (_, leaf) in zip(plan.services, services, strict=True)]
        private = [
            (probe.prefix, orjson.Fragment(leaf)) for probe, leaf in zip(plan.probes, probes, strict=True)
        ]
        missing = NO_SERVICE.format(domain=self._settings.domain)
        pieces = self._clusters.of(plan.clusters)
        return Rendered(
            clusters={c.name: piece for c, piece in zip(plan.clusters, pieces, strict=True)},
            serving=frozenset(c.name for c in plan.clusters if c.endpoints),
            routed=frozenset(piece.cluster for service in plan.services for piece in service.ring),
            public=file([routes.route_configuration("public", [*hosts, routes.by_path(leaves, missing)])]),
            private=file([routes.route_configuration("private", [routes.by_path(private, NO_BACKEND)])]),
        )

    def _service(self, service: Service) -> tuple[orjson.Fragment, orjson.Fragment]:
        host = routes.virtual_host(service, self._settings)
        path = routes.path_route(service, self._settings)
        return orjson.Fragment(orjson.dumps(host)), orjson.Fragment(orjson.dumps(path))


def file(resources: Iterable[Any]) -> File:
    """Return a discovery response in JSON; the same resources have the same version."""
    body = orjson.dumps(list(resources))
    version = hashlib.blake2b(body, digest_size=12).hexdigest()
    whole = {"version_info": version, "resources": orjson.Fragment(body)}
    return File(version, orjson.dumps(whole))


def cluster_file(found: Mapping[str, bytes]) -> File:
    """Return the clusters' file, in the order of their names."""
    return file(orjson.Fragment(found[name]) for name in sorted(found))


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
