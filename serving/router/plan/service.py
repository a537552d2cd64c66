"""One service of a gateway, from a Route and its EndpointSlices.

The Inference controller sets the segments; only segments of backends that are not ready are reassigned here.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.objects import Object
from serving.resources.names import H2C, SERVICE_NAME_LABEL, UNIX_PROTOCOL, pod_socket_name
from serving.resources.traffic_split import RING_UNITS
from serving.router.plan.policy import (
    CLUSTER_DEFAULTS,
    ROUTE_DEFAULTS,
    ClusterPolicy,
    RoutePolicy,
    cluster_policy,
    route_policy,
)
from serving.router.plan.ring import BackendSegment, add_unweighted, reassign_unready

NOTHING_PROVEN = "no revision of this service has been proven yet"
"""Why a new service is unavailable; not an error, as its first revision is starting."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 section 5.1."""
_RESERVED_HEADERS = ("x-slipway-", "x-envoy-", "x-gateway-destination-endpoint")
"""Beginnings of the names of headers that do not identify a caller: gateways set them. The last one names a
replica in the Gateway API Inference Extension."""
_SOCKET_NAME_BYTES = 6
"""Among a million clusters, two have the same socket name with a probability of 1 in 500."""


@dataclass(frozen=True, order=True)
class Endpoint:
    """One replica."""

    address: str
    port: int
    unix: bool = False
    """Whether Envoy reaches it by a Unix socket, not by TCP."""

    @property
    def socket(self) -> str:
        """The file name of its Unix socket, among the sockets of this machine's Pods."""
        return pod_socket_name(self.address, self.port)


@dataclass(frozen=True)
class Cluster:
    """One revision of a predictor: its ready replicas, in a fixed order.

    The activator holds the requests to an `on_demand` cluster that has no replica. The replicas of an `h2c`
    cluster speak HTTP/2 without TLS, as gRPC does; others speak HTTP/1.1.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    on_demand: bool = False
    policy: ClusterPolicy = CLUSTER_DEFAULTS
    h2c: bool = False

    @property
    def can_serve(self) -> bool:
        """Whether a request is answered or held: on demand, without a replica, by the activator."""
        return self.on_demand or bool(self.endpoints)


@dataclass(frozen=True)
class ClusterSegment:
    """Consecutive units of the ring that belong to one cluster; size 0 while the backend has no weight."""

    cluster: str
    arm: str
    model_version: str
    size: int
    h2c: bool = False
    """Whether the cluster's replicas speak HTTP/2."""


@dataclass(frozen=True)
class Sticky:
    """How a caller is assigned to an arm: by the hash of a header's value and a salt."""

    header: str
    """Its name in lower case."""
    salt: str
    """Differs between A/B tests, so that they assign a caller independently of each other."""


@dataclass(frozen=True)
class ProbeRoute:
    """The route of a backend on the private listener, which a backend has even without weight."""

    prefix: str
    """`/NAMESPACE/BACKEND/`."""
    cluster: str


@dataclass(frozen=True)
class Candidate:
    """A backend that has to be probed on its private address before it may get traffic."""

    backend: str
    address: str
    """Its path on the private listener, `/NAMESPACE/BACKEND`."""
    probe: tuple[str, ...]
    """Paths to GET, or gRPC methods to call where it is `h2c`."""
    h2c: bool
    has_replica: bool


@dataclass(frozen=True)
class GatewayService:
    """The public address of one Route, and the backends behind it."""

    namespace: str
    route: str
    """The Route's name."""
    name: str
    """The Inference's name, which is part of the address."""
    generation: int
    """The Route's generation."""
    created: str
    """The Route's creation timestamp in RFC 3339."""
    ring: tuple[ClusterSegment, ...]
    """Empty if no backend can serve; else with a segment of size 0 for each backend without weight, so that a
    change of weights changes nothing else."""
    sticky: Sticky | None
    clusters: tuple[Cluster, ...]
    probes: tuple[ProbeRoute, ...]
    arm_percentages: tuple[tuple[str, float], ...]
    """Each arm with its share of `ring` in percent, for the Route's status alone."""
    unavailable: str = ""
    """Why `ring` is empty."""
    problem: str = ""
    """Why the Route is invalid, and not served; empty if it is valid."""
    policy: RoutePolicy = ROUTE_DEFAULTS
    candidates: tuple[Candidate, ...] = ()
    token_usage: str = "none"
    """How its answers report tokens: `none`, `final` or `continuous` (see `RouteSpec`)."""

    @property
    def counts_tokens(self) -> bool:
        """Whether the gateway counts the tokens of its requests."""
        return self.token_usage != "none"

    @property
    def prefix(self) -> str:
        """The public address by path."""
        return f"/{self.namespace}/{self.name}/"

    def host(self, domain: str) -> str:
        """Return the public address by host."""
        return f"{self.name}.{self.namespace}.{domain}"


def gateway_service(route: Object, slices_by_kube_service: Mapping[str, Sequence[Object]]) -> GatewayService:
    """Return the service of one Route.

    Args:
        route: the Route.
        slices_by_kube_service: the EndpointSlices of its namespace by the name of their Service.
    """
    meta, spec = route["metadata"], route["spec"]
    namespace: str = meta["namespace"]
    backends: dict[str, Object] = {backend["name"]: backend for backend in spec.get("backends") or []}
    clusters = {
        name: build_cluster(namespace, backend, slices_by_kube_service.get(backend["service"], ()), spec)
        for name, backend in backends.items()
    }
    segments = [
        BackendSegment(segment["backend"], int(segment["size"])) for segment in spec.get("segments") or []
    ]
    ready = {name for name, cluster in clusters.items() if cluster.can_serve}
    sticky = spec.get("sticky") or None
    backend_ring = add_unweighted(
        reassign_unready(segments, ready), list(backends), keep_positions=sticky is not None
    )
    ring = tuple(
        ClusterSegment(
            cluster=clusters[name].name,
            arm=backends[name]["arm"],
            model_version=backends[name].get("modelVersion") or "",
            size=size,
            h2c=clusters[name].h2c,
        )
        for name, size in backend_ring
    )
    unique_clusters = {cluster.name: cluster for cluster in clusters.values()}  # backends may share a Service
    return GatewayService(
        namespace=namespace,
        route=meta["name"],
        name=spec["inference"],
        generation=int(meta.get("generation") or 0),
        created=str(meta.get("creationTimestamp") or ""),
        ring=ring,
        sticky=Sticky(str(sticky["header"]).lower(), str(sticky["salt"])) if sticky else None,
        clusters=tuple(unique_clusters.values()),
        probes=tuple(ProbeRoute(f"/{namespace}/{name}/", cluster.name) for name, cluster in clusters.items()),
        arm_percentages=_percentages([backend["arm"] for backend in backends.values()], ring),
        unavailable="" if ring else _why_unavailable(segments),
        problem=_problem(sticky, segments, backends),
        policy=route_policy(spec),
        candidates=tuple(
            Candidate(
                backend=name,
                address=f"/{namespace}/{name}",
                probe=tuple(backend["probe"]),
                h2c=clusters[name].h2c,
                has_replica=bool(clusters[name].endpoints),
            )
            for name, backend in backends.items()
            if backend.get("probe")
        ),
        token_usage=str(spec.get("tokenUsage") or "none"),
    )


def build_cluster(namespace: str, backend: Object, slices: Sequence[Object], spec: Object) -> Cluster:
    """Return the cluster of a backend of a Route's spec, with the endpoints of its Service's slices."""
    return Cluster(
        cluster_name(namespace, backend),
        tuple(sorted(ready_endpoints(backend, slices))),
        on_demand=bool(backend.get("onDemand")),
        policy=cluster_policy(spec, backend),
        h2c=speaks_h2c(backend),
    )


def cluster_name(namespace: str, backend: Object) -> str:
    """Return the name of the cluster of a Route's backend."""
    return f"{namespace}/{backend['service']}/{int(backend['port'])}"


def speaks_h2c(backend: Object) -> bool:
    """Whether a Route's backend speaks HTTP/2 without TLS."""
    return backend.get("protocol") == H2C


def socket_name(cluster: str) -> str:
    """Return the file name of the activator's socket for a cluster; short, as socket paths are limited."""
    return hashlib.blake2b(cluster.encode(), digest_size=_SOCKET_NAME_BYTES).hexdigest()


def ready_endpoints(backend: Object, slices: Sequence[Object]) -> dict[Endpoint, str]:
    """Return the ready replicas of a backend with the names of their Pods, empty where unknown.

    As in kube-proxy, an endpoint is ready unless `conditions.ready` is false, and its first address is used.
    """
    service_port = int(backend["port"])
    return {
        Endpoint(address, *_target(item, service_port)): (endpoint.get("targetRef") or {}).get("name", "")
        for item in slices
        for endpoint in item.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint["addresses"][:1]
    }


def services_used(route: Object) -> set[str]:
    """Return the Services of a Route's backends, as `NAMESPACE/NAME`."""
    namespace = route["metadata"]["namespace"]
    return {f"{namespace}/{backend['service']}" for backend in route["spec"].get("backends") or []}


def clusters_on_demand(route: Object) -> set[str]:
    """Return the names of the clusters of a Route's backends on demand."""
    namespace, backends = route["metadata"]["namespace"], route["spec"].get("backends") or []
    return {cluster_name(namespace, backend) for backend in backends if backend.get("onDemand")}


def slice_service_key(item: Object) -> str:
    """Return the Service of an EndpointSlice as `NAMESPACE/NAME`."""
    meta = item["metadata"]
    return f"{meta.get('namespace')}/{(meta.get('labels') or {}).get(SERVICE_NAME_LABEL, '')}"


def _target(item: Object, service_port: int) -> tuple[int, bool]:
    """Return the port of an EndpointSlice's replicas, and whether Envoy reaches it by a Unix socket.

    A slice lists the `targetPort` of each port of its Service, without the port of the Service. So the only
    port of a slice is the target, also with another number; among several, the port of the Service is the
    target.
    """
    is_unix = {
        int(port["port"]): port.get("appProtocol") == UNIX_PROTOCOL
        for port in item.get("ports") or []
        if port.get("port")
    }
    number = next(iter(is_unix)) if len(is_unix) == 1 else service_port
    return number, is_unix.get(number, False)


def _percentages(arms: Sequence[str], ring: Sequence[ClusterSegment]) -> tuple[tuple[str, float], ...]:
    """Return each arm with its share of the ring in percent, by name; 0 for all arms of an empty ring."""
    units = dict.fromkeys(arms, 0)
    for segment in ring:
        units[segment.arm] += segment.size
    total = sum(units.values()) or 1
    return tuple((arm, round(100 * count / total, 2)) for arm, count in sorted(units.items()))


def _why_unavailable(segments: Sequence[BackendSegment]) -> str:
    return "no replica of this service is ready" if segments else NOTHING_PROVEN


def _problem(
    sticky: Object | None, segments: Sequence[BackendSegment], backends: Mapping[str, Object]
) -> str:
    """Return why a Route is invalid; empty if it is valid."""
    if sticky is not None:
        header = str(sticky["header"])
        if not _HEADER_NAME.fullmatch(header):
            return f"spec.sticky.header: {header!r} is not a header name"
        if header.lower().startswith(_RESERVED_HEADERS):
            return f"spec.sticky.header: {header!r} is the gateway's own"
    unknown = sorted({segment.backend for segment in segments} - set(backends))
    if unknown:
        return f"spec.segments: {unknown[0]!r} is not one of spec.backends"
    total = sum(segment.size for segment in segments)
    if segments and total != RING_UNITS:
        return f"spec.segments: sizes sum to {total}, not {RING_UNITS}"
    return ""
