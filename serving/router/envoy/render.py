"""Renders the changes of a route plan as Envoy's resources; routes are joined from encoded parts.

A change of one service among 1,000 must not cost the rendering of 1,000. The weights of a service are in its
routes, or, where they may change, apart from the routes in a layer of Envoy's runtime, from which the routes
read them by the service's key prefix (`weights.key_prefix`; empty for weights in the routes).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

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
    """Resources that Envoy must have before a route configuration."""

    named: frozenset[str] = frozenset()
    """The clusters that the routes name."""
    serving: frozenset[str] = frozenset()
    """Those of `named` whose weight is above 0 and in a route itself. Envoy sends them requests at once, so
    they must have endpoints."""
    weights: frozenset[str] = frozenset()
    """Key prefixes (`weights.key_prefix`) of the weights that the routes read. Envoy must also have the
    clusters of these weights (`Weights.needs`)."""


class RenderedRoutes(NamedTuple):
    """A route configuration, and the resources that Envoy must have before it."""

    resource: Resource
    dependencies: Dependencies


@dataclass(frozen=True)
class ResourceChanges:
    """Changes to the target resources, by name; None removes.

    Weights are by key prefix, as a layer has the weights of several services. Route configurations are never
    removed.
    """

    clusters: Mapping[str, Resource | None] = field(default_factory=dict)
    endpoints: Mapping[str, Resource | None] = field(default_factory=dict)
    weights: Mapping[str, Weights | None] = field(default_factory=dict)
    routes: Mapping[str, RenderedRoutes] = field(default_factory=dict)


def starting(settings: GatewaySettings) -> ResourceChanges:
    """Return the resources of a new Envoy while the Routes cannot be read: 503, as a 404 would be wrong."""
    host = routes.unavailable_host(STARTING, settings)
    return ResourceChanges(
        routes={
            name: RenderedRoutes(
                encoded_resource(envoy.RouteConfiguration, routes.route_configuration(name, host)),
                Dependencies(),
            )
            for name in ("public", "private")
        }
    )


class Renderer:
    """Renders changes of a plan, and keeps the encoded parts of all services."""

    def __init__(self, settings: GatewaySettings, folders: SocketFolders) -> None:
        """Render nothing yet; `folders` have the Unix sockets to which Envoy connects."""
        self._settings = settings
        self._folders = folders
        self._not_found = NO_SERVICE.format(domain=settings.domain)
        self._services: dict[str, _ServiceParts] = {}
        """By the prefix of the service's paths."""
        self._probes: dict[str, _ProbePart] = {}
        """By the prefix of the probe route's paths."""
        self._rendered: set[str] = set()
        """The names of the route configurations that were rendered at least once."""

    def render(self, plan: RoutePlanChanges) -> ResourceChanges:
        """Return the changes of a plan as resources.

        The public routes are among them at first, and then only if those of a service differ: weights in a
        layer change no route.
        """
        changed_clusters: dict[str, Resource | None] = dict.fromkeys(plan.clusters)
        changed_endpoints: dict[str, Resource | None] = dict.fromkeys(plan.clusters)
        for name, cluster in plan.clusters.items():
            if cluster is not None:
                changed_clusters[name] = resource(clusters.cluster(cluster, self._settings))
                changed_endpoints[name] = self._endpoints(cluster)
        old = {prefix: self._services.get(prefix) for prefix in plan.services}
        for prefix, service in plan.services.items():
            _put(self._services, prefix, None if service is None else self._service(service))
        for prefix, probe in plan.probes.items():
            part = None
            if probe is not None:
                part = _ProbePart(routes.probe_entry(probe, self._settings), probe.cluster)
            _put(self._probes, prefix, part)
        new = {prefix: self._services.get(prefix) for prefix in plan.services}
        configurations: dict[str, RenderedRoutes] = {}
        if "public" not in self._rendered or any(_routes_of(old[p]) != _routes_of(new[p]) for p in old):
            configurations["public"] = self._public()
        if "private" not in self._rendered or plan.probes:
            configurations["private"] = self._private()
        self._rendered |= configurations.keys()
        return ResourceChanges(
            clusters=changed_clusters,
            endpoints=changed_endpoints,
            # `xds.server` joins weights into layers, as it decides which weights Envoy may have.
            weights=_changed_weights(old.values(), new.values()),
            routes=configurations,
        )

    def _public(self) -> RenderedRoutes:
        parts = [self._services[prefix] for prefix in sorted(self._services)]
        entries = b"".join([*(part.path for part in parts), *self._models()])
        hosts = b"".join(part.host for part in parts)
        dependencies = Dependencies(
            frozenset().union(*(part.named for part in parts)),
            frozenset().union(*(part.serving for part in parts)),
            frozenset(part.key_prefix for part in parts if part.weights is not None),
        )
        configuration = _configuration("public", entries, self._not_found, self._settings, hosts)
        return RenderedRoutes(configuration, dependencies)

    def _models(self) -> Iterator[bytes]:
        """Yield, for each namespace with language models, the route of all of them (`/NAMESPACE/openai/`).

        A service that is named `openai` keeps this address.
        """
        names: dict[str, list[str]] = {}
        for prefix in sorted(self._services):
            part = self._services[prefix]
            if part.language_model is not None:
                namespace, name = part.language_model
                names.setdefault(namespace, []).append(name)
        for namespace, models in names.items():
            if routes.models_prefix(namespace) not in self._services:
                yield routes.models_entry(namespace, models)

    def _private(self) -> RenderedRoutes:
        entries = b"".join(self._probes[prefix].entry for prefix in sorted(self._probes))
        dependencies = Dependencies(named=frozenset(part.cluster for part in self._probes.values()))
        configuration = _configuration("private", entries, NO_BACKEND, self._settings)
        return RenderedRoutes(configuration, dependencies)

    def _endpoints(self, cluster: Cluster) -> Resource:
        """Return a cluster's endpoints; of one that cannot serve, with a version that says so."""
        endpoints = resource(clusters.load_assignment(cluster, self._folders))
        if cluster.can_serve:
            return endpoints
        return Resource(version=NO_ENDPOINTS, content=endpoints.content)

    def _service(self, service: GatewayService) -> "_ServiceParts":
        key_prefix = weights.key_prefix(service)
        with_weight = frozenset(segment.cluster for segment in service.ring if segment.size)
        return _ServiceParts(
            host=routes.virtual_host(service, key_prefix, self._settings),
            path=routes.path_entry(service, key_prefix, self._settings),
            key_prefix=key_prefix,
            weights=weights.weights_of(service, key_prefix) if key_prefix else None,
            serving=frozenset() if key_prefix else with_weight,
            named=frozenset(segment.cluster for segment in service.ring),
            language_model=(service.namespace, service.name) if service.counts_tokens else None,
        )


def _configuration(
    name: str, entries: bytes, not_found: str, settings: GatewaySettings, hosts: bytes = b""
) -> Resource:
    """Return one route configuration.

    Args:
        name: its name.
        entries: concatenated encoded entries of the tree of paths (`routes.path_entry` and others).
        not_found: the message of the 404 for every other path.
        settings: the gateway's.
        hosts: concatenated encoded virtual hosts, each of one service.
    """
    by_path = routes.paths_host(entries, not_found, settings)
    return encoded_resource(envoy.RouteConfiguration, routes.route_configuration(name, hosts + by_path))


@dataclass(frozen=True)
class _ServiceParts:
    """The encoded parts of routes and weights of one service."""

    host: bytes
    """Its address by host: an encoded part of the public route configuration."""
    path: bytes
    """Its address by path: an encoded entry of the tree of paths."""
    key_prefix: str
    """That of its weights; empty if they are in its routes."""
    weights: Weights | None
    """None if they are in its routes."""
    serving: frozenset[str]
    """As in `Dependencies`."""
    named: frozenset[str]
    """As in `Dependencies`."""
    language_model: tuple[str, str] | None
    """Its namespace and name, if it is one."""


class _ProbePart(NamedTuple):
    entry: bytes
    """The encoded entry of a probe route in the tree of private paths."""
    cluster: str


def _routes_of(parts: _ServiceParts | None) -> tuple[bytes, bytes, tuple[str, str] | None] | None:
    """Return a service's parts of the public routes; with an empty ring the first two are of any kind."""
    return None if parts is None else (parts.host, parts.path, parts.language_model)


def _changed_weights(
    old: Iterable[_ServiceParts | None], new: Iterable[_ServiceParts | None]
) -> dict[str, Weights | None]:
    """Return the weights that differ, by key prefix; None removes."""
    before = {part.key_prefix: part.weights for part in old if part is not None and part.key_prefix}
    after = {part.key_prefix: part.weights for part in new if part is not None and part.key_prefix}
    return {
        key_prefix: after.get(key_prefix)
        for key_prefix in before | after
        if before.get(key_prefix) != after.get(key_prefix)
    }


def _put(table: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
