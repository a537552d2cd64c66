"""One Route and its EndpointSlices, as the API has them → one service of a RoutePlan, as a proxy needs it. Pure.

Knows nothing of Envoy, and nothing of why the weights are what they are: segments come from the Inference
controller, and the only thing decided here is where a segment goes whose backend has no ready endpoint.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from serving.objects import Object
from serving.resources import names

RING = 10_000
"""Units of the hash ring: serving/planning/inference/traffic.py makes segments that sum to it."""

NOTHING_PROVEN = "no revision of this service has been proven yet"
"""Why a new service is unavailable: in order, until its first revision is ready."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name: RFC 9110 section 5.1."""
_SOCKET_BYTES = 6
"""Two of a million clusters have the same with a chance of 1 in 500."""
_RESERVED = ("x-slipway-", "x-envoy-", "x-gateway-destination-endpoint")


@dataclass(frozen=True, order=True)
class Endpoint:
    """One replica."""

    address: str
    port: int


@dataclass(frozen=True)
class Cluster:
    """One revision of one predictor: its ready replicas, in a fixed order.

    Without any, the requests to one that is `on_demand` go to the activator, which holds them.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    on_demand: bool = False

    @property
    def socket(self) -> str:
        """The file name of the activator's socket for it: short, as sockets' paths are, and of any cluster another."""
        return hashlib.blake2b(self.name.encode(), digest_size=_SOCKET_BYTES).hexdigest()


@dataclass(frozen=True)
class Slice:
    """A stretch of the ring: `weight` units of 1/10,000 go to `cluster`; none, while it waits for weight."""

    cluster: str
    arm: str
    model_version: str
    weight: int


@dataclass(frozen=True)
class Sticky:
    """Callers are told apart by this header (lower case); `salt` makes experiments independent."""

    header: str
    salt: str


@dataclass(frozen=True)
class Probe:
    """A backend on the private listener: `/NAMESPACE/BACKEND/` reaches `cluster`, with weight or without."""

    prefix: str
    cluster: str


@dataclass(frozen=True)
class Service:
    """One Route: a public address and where its requests go.

    `ring` has every backend, those without weight too, so that weights can change while nothing else does. It is
    empty when nothing can serve, and `unavailable` then says why. `problem` is not empty when the Route cannot be
    honoured as written. `weights` is what each arm really gets, in percent.
    """

    namespace: str
    route: str
    name: str
    generation: int
    created: str
    ring: tuple[Slice, ...]
    sticky: Sticky | None
    clusters: tuple[Cluster, ...]
    probes: tuple[Probe, ...]
    weights: tuple[tuple[str, float], ...]
    unavailable: str = ""
    problem: str = ""

    @property
    def prefix(self) -> str:
        """The public address by path."""
        return f"/{self.namespace}/{self.name}/"

    def host(self, domain: str) -> str:
        """The public address by host."""
        return f"{self.name}.{self.namespace}.{domain}"


def service_of(route: Object, slices_of: Mapping[str, Sequence[Object]]) -> Service:
    """Return what one Route asks for.

    Args:
        route: the Route.
        slices_of: EndpointSlices of its namespace by Service name.
    """
    meta, spec = route["metadata"], route["spec"]
    namespace: str = meta["namespace"]
    backends: list[Object] = list(spec.get("backends") or [])
    clusters = {b["name"]: cluster_of(namespace, b, slices_of.get(b["service"], ())) for b in backends}
    by_name = {b["name"]: b for b in backends}
    segments = [(s["backend"], int(s["size"])) for s in spec.get("segments") or []]
    # Segments name what was proven: on demand, it serves without a replica too.
    ready = {name for name, cluster in clusters.items() if cluster.endpoints or cluster.on_demand}
    sticky = spec.get("sticky")
    ring = tuple(
        Slice(clusters[n].name, by_name[n]["arm"], by_name[n].get("modelVersion") or "", size)
        for n, size in lay_out(share_out(segments, ready), list(by_name), keep_places=sticky is not None)
    )
    return Service(
        namespace=namespace,
        route=meta["name"],
        name=spec["inference"],
        generation=int(meta.get("generation") or 0),
        created=str(meta.get("creationTimestamp") or ""),
        ring=ring,
        sticky=Sticky(str(sticky["header"]).lower(), str(sticky["salt"])) if sticky else None,
        clusters=tuple({c.name: c for c in clusters.values()}.values()),
        probes=tuple(Probe(f"/{namespace}/{n}/", c.name) for n, c in clusters.items()),
        weights=_weights([b["arm"] for b in backends], ring),
        unavailable="" if ring else _why_unavailable(segments),
        problem=_problem(sticky, segments, by_name),
    )


def share_out(segments: Sequence[tuple[str, int]], ready: set[str]) -> list[tuple[str, int]]:
    """Give the segments of backends that are not ready to those that are, in proportion to their weights.

    A unit of the ring that a ready backend has stays where it is, so no other caller moves. Rounding is
    carried from segment to segment, so the shares differ from the exact ones by less than a unit.
    Neighbouring segments of one backend are joined. Without a ready backend that has weight: empty.
    """
    weight: dict[str, int] = {}
    for name, size in segments:
        if name in ready:
            weight[name] = weight.get(name, 0) + size
    if not weight:
        return []
    total = sum(weight.values())
    carry = dict.fromkeys(weight, Fraction(0))
    result: list[tuple[str, int]] = []
    for name, size in segments:
        pieces = [(name, size)] if name in ready else _split(size, weight, total, carry)
        for owner, units in pieces:
            if result and result[-1][0] == owner:
                result[-1] = (owner, result[-1][1] + units)
            elif units:
                result.append((owner, units))
    return result


def lay_out(
    pieces: Sequence[tuple[str, int]], names: Sequence[str], *, keep_places: bool
) -> list[tuple[str, int]]:
    """Add the backends without weight to the ring, in an order that as few changes of weights as possible change.

    Args:
        pieces: stretches of the ring; empty when nothing can serve, and so is then the result.
        names: all backends, in the Route's order.
        keep_places: callers have places on the ring, so stretches must stay where they are; otherwise each backend
            has one stretch.
    """
    if not pieces:
        return []
    units = dict.fromkeys(names, 0)
    for name, size in pieces:
        units[name] += size
    in_order = [(name, size) for name, size in units.items()]
    if not keep_places or [(name, size) for name, size in in_order if size] == list(pieces):
        return in_order
    return [*pieces, *((name, 0) for name, size in in_order if not size)]


def _split(
    size: int, weight: Mapping[str, int], total: int, carry: dict[str, Fraction]
) -> list[tuple[str, int]]:
    ideal = {name: Fraction(size * units, total) + carry[name] for name, units in weight.items()}
    given = {name: max(0, value.numerator // value.denominator) for name, value in ideal.items()}
    order = sorted(ideal, key=lambda name: (given[name] - ideal[name], name))
    for index in range(size - sum(given.values())):
        given[order[index % len(order)]] += 1
    for name in reversed(order):
        surplus = sum(given.values()) - size
        taken = min(max(surplus, 0), given[name])
        given[name] -= taken
    for name, value in ideal.items():
        carry[name] = value - given[name]
    return list(given.items())


def services_used(route: Object) -> set[str]:
    """Return the Services that a Route sends to, as `NAMESPACE/NAME`."""
    namespace = route["metadata"]["namespace"]
    return {f"{namespace}/{backend['service']}" for backend in route["spec"].get("backends") or []}


def service_of_slice(endpoint_slice: Object) -> str:
    """Return the Service that an EndpointSlice belongs to, as `NAMESPACE/NAME`."""
    meta = endpoint_slice["metadata"]
    return f"{meta.get('namespace')}/{(meta.get('labels') or {}).get(names.SERVICE_NAME_LABEL, '')}"


def cluster_of(namespace: str, backend: Object, slices: Sequence[Object]) -> Cluster:
    """Return a backend of a Route in this namespace, with what the EndpointSlices of its Service say of it."""
    name = f"{namespace}/{backend['service']}/{int(backend['port'])}"
    found = tuple(sorted(replicas_of(backend, slices)))
    return Cluster(name, found, on_demand=bool(backend.get("onDemand")))


def replicas_of(backend: Object, slices: Sequence[Object]) -> dict[Endpoint, str]:
    """Return the ready replicas of a backend, each with its Pod's name, which may be unknown (empty)."""
    port = int(backend["port"])
    return {
        Endpoint(address, _port(item, port)): (endpoint.get("targetRef") or {}).get("name", "")
        for item in slices
        for endpoint in item.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint["addresses"][:1]
    }


def _port(item: Object, wanted: int) -> int:
    """A slice lists target ports; a Service of one port may map it, one of several is matched by number."""
    ports = [int(p["port"]) for p in item.get("ports") or [] if p.get("port")]
    return ports[0] if len(ports) == 1 else wanted


def _weights(arms: Sequence[str], ring: Sequence[Slice]) -> tuple[tuple[str, float], ...]:
    units = dict.fromkeys(arms, 0)
    for piece in ring:
        units[piece.arm] += piece.weight
    total = sum(units.values()) or 1
    return tuple((arm, round(100 * count / total, 2)) for arm, count in sorted(units.items()))


def _why_unavailable(segments: Sequence[tuple[str, int]]) -> str:
    if not segments:
        return NOTHING_PROVEN
    return "no replica of this service is ready"


def _problem(
    sticky: Object | None, segments: Sequence[tuple[str, int]], backends: Mapping[str, Object]
) -> str:
    header = str(sticky["header"]) if sticky else "x"
    if not _HEADER.fullmatch(header):
        return f"spec.sticky.header: {header!r} is not a header name"
    if header.lower().startswith(_RESERVED):
        return f"spec.sticky.header: {header!r} is the gateway's own"
    unknown = sorted({name for name, _ in segments} - set(backends))
    if unknown:
        return f"spec.segments: {unknown[0]!r} is not one of spec.backends"
    total = sum(size for _, size in segments)
    if segments and total != RING:
        return f"spec.segments: sizes sum to {total}, not {RING}"
    return ""
