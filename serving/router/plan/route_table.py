"""The services of all Routes, updated one Route at a time, and the changes that result.

If two Routes claim one address, or two backends one private address, the older Route gets it (or the first by
name), so that all gateways decide alike. The cost depends on the changes, not on the number of Routes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from serving.router.plan.service import Cluster, GatewayService, ProbeRoute

T = TypeVar("T")


RouteKey = tuple[str, str]
"""Namespace and name of a Route."""


class _Precedence(NamedTuple):
    """Orders the Routes that claim one name: the Route with the lowest precedence owns it."""

    created: str
    """The creation timestamp in RFC 3339, in whose order texts sort."""
    route: RouteKey


@dataclass(frozen=True)
class RoutePlanChanges:
    """Changes of a gateway's route plan; None removes."""

    services: Mapping[str, GatewayService | None] = field(default_factory=dict)
    """By `GatewayService.prefix`."""
    clusters: Mapping[str, Cluster | None] = field(default_factory=dict)
    """By `Cluster.name`."""
    probes: Mapping[str, ProbeRoute | None] = field(default_factory=dict)
    """By `ProbeRoute.prefix`."""
    routes: Mapping[RouteKey, str] = field(default_factory=dict)
    """Why a Route is not served; an empty text if it is."""


class RouteTable:
    """The services of all Routes, and which of them own the names that they claim."""

    def __init__(self) -> None:
        self._services: dict[RouteKey, GatewayService] = {}
        self._addresses: _Claims[GatewayService] = _Claims()
        """Claims of services to their prefixes."""
        self._clusters: _Claims[Cluster] = _Claims()
        self._probes: _Claims[ProbeRoute] = _Claims()
        self._touched: set[RouteKey] = set()
        """Routes whose entry in `RoutePlanChanges.routes` may have changed since the last call of
        `take_changes`."""

    @property
    def services(self) -> Mapping[RouteKey, GatewayService]:
        """The services of all Routes, including those that are not served."""
        return self._services

    def put(self, key: RouteKey, service: GatewayService | None) -> None:
        """Replace one Route's service; None removes it."""
        old = self._services.pop(key, None)
        if service is not None:
            self._services[key] = service
        self._touched.add(key)
        # Two prefixes if the Route names another Inference now: one is released, the other claimed.
        for prefix in {item.prefix for item in (old, service) if item is not None}:
            previous_owner = self._addresses.owner(prefix)
            if old is not None and old.prefix == prefix:
                self._addresses.release(prefix, _precedence(old))
            if service is not None and service.prefix == prefix and not service.problem:
                self._addresses.claim(prefix, _precedence(service), service)
            owner = self._addresses.owner(prefix)
            if owner is not previous_owner:
                # The other Routes that claim the prefix are served now, or no longer, or must name another
                # owner in their reason.
                self._touched |= {precedence.route for precedence in self._addresses.claims(prefix)}
                self._transfer_claims(previous_owner, owner)

    def take_changes(self) -> RoutePlanChanges:
        """Return the changes since the last call."""
        touched, self._touched = self._touched, set()
        return RoutePlanChanges(
            services=dict(self._addresses.take_changes()),
            clusters=dict(self._clusters.take_changes()),
            probes=dict(self._probes.take_changes()),
            routes={key: self._why_not_served(key) for key in touched if key in self._services},
        )

    def _transfer_claims(self, previous_owner: GatewayService | None, owner: GatewayService | None) -> None:
        """Release the clusters and probe routes of an address's previous owner, and claim those of its owner.

        A service without its address claims none.
        """
        if previous_owner is not None:
            for cluster in previous_owner.clusters:
                self._clusters.release(cluster.name, _precedence(previous_owner))
            for probe in previous_owner.probes:
                self._probes.release(probe.prefix, _precedence(previous_owner))
        if owner is not None:
            for cluster in owner.clusters:
                self._clusters.claim(cluster.name, _precedence(owner), cluster)
            for probe in owner.probes:
                self._probes.claim(probe.prefix, _precedence(owner), probe)

    def _why_not_served(self, key: RouteKey) -> str:
        """Return why a Route is not served; empty if it is."""
        service = self._services[key]
        owner = self._addresses.owner(service.prefix)
        if service.problem or owner is service:
            return service.problem
        assert owner is not None  # a service without a problem claims its prefix itself
        return f"{service.prefix} already belongs to Route {owner.route}, which is older"


class _Claims(Generic[T]):
    """The claims to names, and the names whose owner has changed."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[_Precedence, T]] = {}
        self._owner_before: dict[str, T | None] = {}
        """Of each name with a claim or release since the last call of `take_changes`: its owner before."""

    def owner(self, name: str) -> T | None:
        claims = self._by_name.get(name)
        return claims[min(claims)] if claims else None

    def claims(self, name: str) -> Mapping[_Precedence, T]:
        return self._by_name.get(name, {})

    def claim(self, name: str, precedence: _Precedence, value: T) -> None:
        self._owner_before.setdefault(name, self.owner(name))
        self._by_name.setdefault(name, {})[precedence] = value

    def release(self, name: str, precedence: _Precedence) -> None:
        self._owner_before.setdefault(name, self.owner(name))
        claims = self._by_name.get(name, {})
        claims.pop(precedence, None)
        if not claims:
            self._by_name.pop(name, None)

    def take_changes(self) -> Iterator[tuple[str, T | None]]:
        """Yield each name whose owner has changed since the last call, with its owner."""
        before, self._owner_before = self._owner_before, {}
        for name, previous in sorted(before.items(), key=lambda item: item[0]):
            owner = self.owner(name)
            if owner != previous:
                yield name, owner


def _precedence(service: GatewayService) -> _Precedence:
    return _Precedence(service.created, (service.namespace, service.route))
