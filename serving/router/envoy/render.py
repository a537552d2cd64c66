"""Renders the changes of a route plan as Envoy's resources; routes are joined from encoded parts.

A change of one service among 1,000 must not cost the rendering of 1,000.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from serving.router.envoy import clusters, routes, weights
from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.resource import NO_ENDPOINTS, Resource, encoded_resource, resource
from serving.router.envoy.weights import Weights
from serving.router.plan.route_table import RoutePlanChanges
from serving.router.plan.service import Cluster, GatewayService
from serving.settings import GatewaySettings

T = TypeVar("T")

NO_SERVICE = "no service has this address: use NAME.NAMESPACE.{domain} or /NAMESPACE/NAME/v2/..."
STARTING = "the gateway has just started, and does not know the services yet"
NO_BACKEND = "no backend has this address: use /NAMESPACE/BACKEND/..."


@dataclass(frozen=True)
class Dependencies:
    """Resources that Envoy must have before a route configuration.

    Routes name the clusters in `named`; clusters in `serving` have weight in a route itself, so they must
    have endpoints. `weights` are prefixes of weights, which have their own dependencies.
    """

    named: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ResourceChanges:
    """Changes to the target resources, by name; None removes.

    Weights are by prefix, as several prefixes share a layer. Route configurations are never removed.
    """

    clusters: Mapping[str, Resource | None] = field(default_factory=dict)
    endpoints: Mapping[str, Resource | None] = field(default_factory=dict)
    weights: Mapping[str, Weights | None] = field(default_factory=dict)
    routes: Mapping[str, tuple[Resource, Dependencies]] = field(default_factory=dict)


def starting(settings: GatewaySettings) -> ResourceChanges:
    """Return what a new Envoy serves while the Routes cannot be read: 503, as a 404 would be wrong."""
    host = routes.unavailable_host(STARTING, settings)
    return ResourceChanges(
        routes={
            name: (
                encoded_resource(envoy.RouteConfiguration, routes.route_configuration(name, host)),
                Dependencies(),
            )
            for name in ("public", "private")
        }
    )


class Renderer:
    """Renders changes of a plan, and keeps the encoded parts of all services."""

    def __init__(self, settings: GatewaySettings, folders: SocketFolders) -> None:
        """Args: folders: those of the sockets to which Envoy connects."""
        self._settings = settings
        self._folders = folders
        self._not_found = NO_SERVICE.format(domain=settings.domain)
        self._services: dict[str, _ServiceParts] = {}
        self._probes: dict[str, tuple[bytes, str]] = {}
        self._rendered: set[str] = set()

    def render(self, plan: RoutePlanChanges) -> ResourceChanges:
        """Return the changes of a plan as resources; weights or endpoints alone change no route."""
        clusters_and_endpoints = {
            name: None if cluster is None else self._cluster(cluster)
            for name, cluster in plan.clusters.items()
        }
        old = {prefix: self._services.get(prefix) for prefix in plan.services}
        for prefix, service in plan.services.items():
            _put(self._services, prefix, None if service is None else self._service(service))
        for prefix, probe in plan.probes.items():
            entry = None if probe is None else (routes.probe_entry(probe, self._settings), probe.cluster)
            _put(self._probes, prefix, entry)
        new = {prefix: self._services.get(prefix) for prefix in plan.services}
        configurations: dict[str, tuple[Resource, Dependencies]] = {}
        if "public" not in self._rendered or any(_routes_of(old[p]) != _routes_of(new[p]) for p in old):
            configurations["public"] = self._public()
        if "private" not in self._rendered or plan.probes:
            configurations["private"] = self._private()
        self._rendered |= configurations.keys()
        return ResourceChanges(
            clusters={name: pair and pair[0] for name, pair in clusters_and_endpoints.items()},
            endpoints={name: pair and pair[1] for name, pair in clusters_and_endpoints.items()},
            # Weights stay parts: `xds.server` joins them into layers, as several prefixes share one.
            weights=_changed_weights(old.values(), new.values()),
            routes=configurations,
        )

    def _public(self) -> tuple[Resource, Dependencies]:
        parts = [self._services[prefix] for prefix in sorted(self._services)]
        entries = b"".join([*(part.path for part in parts), *self._models()])
        hosts = b"".join(part.host for part in parts)
        dependencies = Dependencies(
            frozenset().union(*(part.named for part in parts)),
            frozenset().union(*(part.serving for part in parts)),
            frozenset(part.key_prefix for part in parts if part.weights is not None),
        )
        return _configuration("public", entries, self._not_found, self._settings, hosts), dependencies

    def _models(self) -> Iterator[bytes]:
        """Yield the addresses of all language models of a namespace; a service of its name has it first."""
        names: dict[str, list[str]] = {}
        for prefix in sorted(self._services):
            part = self._services[prefix]
            if part.language_model is not None:
                namespace, name = part.language_model
                names.setdefault(namespace, []).append(name)
        for namespace, models in names.items():
            if routes.models_prefix(namespace) not in self._services:
                yield routes.models_entry(namespace, models, self._settings)

    def _private(self) -> tuple[Resource, Dependencies]:
        entries = b"".join(self._probes[prefix][0] for prefix in sorted(self._probes))
        dependencies = Dependencies(frozenset(cluster for _, cluster in self._probes.values()))
        return _configuration("private", entries, NO_BACKEND, self._settings), dependencies

    def _cluster(self, cluster: Cluster) -> tuple[Resource, Resource]:
        endpoints = resource(clusters.load_assignment(cluster, self._folders))
        return (
            resource(clusters.cluster(cluster, self._settings)),
            endpoints
            if cluster.endpoints or cluster.on_demand
            else Resource(NO_ENDPOINTS, endpoints.content),
        )

    def _service(self, service: GatewayService) -> "_ServiceParts":
        prefix = weights.key_prefix(service)
        return _ServiceParts(
            host=routes.virtual_host(service, prefix, self._settings),
            path=routes.path_entry(service, prefix, self._settings),
            key_prefix=prefix,
            weights=weights.weights_of(service, prefix) if prefix else None,
            serving=frozenset(s.cluster for s in service.ring if s.size and not prefix),
            named=frozenset(segment.cluster for segment in service.ring),
            language_model=None if service.token_usage == "none" else (service.namespace, service.name),
        )


def _configuration(
    name: str, entries: bytes, not_found: str, settings: GatewaySettings, hosts: bytes = b""
) -> Resource:
    """Return one route configuration.

    Args:
        name: its name.
        entries: concatenated encoded entries of the tree of paths.
        not_found: the message of its 404.
        settings: the gateway's.
        hosts: concatenated encoded virtual hosts.
    """
    by_path = routes.paths_host(entries, not_found, settings)
    return encoded_resource(envoy.RouteConfiguration, routes.route_configuration(name, hosts + by_path))


@dataclass(frozen=True)
class _ServiceParts:
    """The encoded parts of routes and weights of one service."""

    host: bytes
    path: bytes
    key_prefix: str
    weights: Weights | None
    serving: frozenset[str]
    named: frozenset[str]
    language_model: tuple[str, str] | None
    """Its namespace and name, if it is one."""


def _routes_of(parts: _ServiceParts | None) -> tuple[bytes, bytes] | None:
    return None if parts is None else (parts.host, parts.path)


def _changed_weights(
    old: Iterable[_ServiceParts | None], new: Iterable[_ServiceParts | None]
) -> dict[str, Weights | None]:
    before = {part.key_prefix: part.weights for part in old if part is not None and part.key_prefix}
    after = {part.key_prefix: part.weights for part in new if part is not None and part.key_prefix}
    return {p: after.get(p) for p in before | after if before.get(p) != after.get(p)}


def _put(table: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
