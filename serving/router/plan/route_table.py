"""The services of all Routes put together, a change at a time: what changes costs, not what is stored. Pure.

Where two Routes want the same address, or two backends the same private address, the older Route has it (then the one
whose name sorts first), so that every gateway decides the same. Knows nothing of Envoy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from serving.router.plan.service import Cluster, Probe, Service

T = TypeVar("T")


RouteKey = tuple[str, str]
"""Namespace and name of a Route."""


class _Rank(NamedTuple):
    """Who comes first has the name."""

    created: str
    route: RouteKey


@dataclass(frozen=True)
class RoutePlan:
    """What a gateway is to serve otherwise than before, by name; None for what goes. From nothing, it is everything.

    `services` and `probes` are named by their prefixes. `routes` says of each Route that was touched why it is left
    out; empty for one that is served.
    """

    services: Mapping[str, Service | None] = field(default_factory=dict)
    clusters: Mapping[str, Cluster | None] = field(default_factory=dict)
    probes: Mapping[str, Probe | None] = field(default_factory=dict)
    routes: Mapping[RouteKey, str] = field(default_factory=dict)


class Assembly:
    """All Routes' services, and which of them have the names that they want."""

    def __init__(self) -> None:
        self._services: dict[RouteKey, Service] = {}
        self._addresses: _Claims[Service] = _Claims()
        self._clusters: _Claims[Cluster] = _Claims()
        self._probes: _Claims[Probe] = _Claims()
        self._touched: set[RouteKey] = set()

    @property
    def services(self) -> Mapping[RouteKey, Service]:
        """Every Route's, those that are left out too."""
        return self._services

    def put(self, key: RouteKey, service: Service | None) -> None:
        """Replace one Route's service; None where the Route is gone."""
        old = self._services.pop(key, None)
        if service is not None:
            self._services[key] = service
        self._touched.add(key)
        for prefix in {found.prefix for found in (old, service) if found is not None}:
            before = self._addresses.holder(prefix)
            if old is not None and old.prefix == prefix:
                self._addresses.release(prefix, _rank(old))
            if service is not None and service.prefix == prefix and not service.problem:
                self._addresses.claim(prefix, _rank(service), service)
            after = self._addresses.holder(prefix)
            if after is not before:
                self._touched |= {rank.route for rank in self._addresses.of(prefix)}
                self._hand_over(before, after)

    def take(self) -> RoutePlan:
        """Return what is different since the last call."""
        touched, self._touched = self._touched, set()
        return RoutePlan(
            dict(self._addresses.take()),
            dict(self._clusters.take()),
            dict(self._probes.take()),
            {key: self._why_not(key) for key in touched if key in self._services},
        )

    def _hand_over(self, before: Service | None, after: Service | None) -> None:
        """Only who has its address has clusters and probes."""
        if before is not None:
            for cluster in before.clusters:
                self._clusters.release(cluster.name, _rank(before))
            for probe in before.probes:
                self._probes.release(probe.prefix, _rank(before))
        if after is not None:
            for cluster in after.clusters:
                self._clusters.claim(cluster.name, _rank(after), cluster)
            for probe in after.probes:
                self._probes.claim(probe.prefix, _rank(after), probe)

    def _why_not(self, key: RouteKey) -> str:
        service = self._services[key]
        holder = self._addresses.holder(service.prefix)
        if service.problem or holder is service:
            return service.problem
        assert holder is not None
        return f"{service.prefix} already belongs to Route {holder.route}, which is older"


class _Claims(Generic[T]):
    """Who wants which name, who has it, and which names have changed hands."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[_Rank, T]] = {}
        self._before: dict[str, T | None] = {}

    def holder(self, name: str) -> T | None:
        found = self._by_name.get(name)
        return found[min(found)] if found else None

    def of(self, name: str) -> Mapping[_Rank, T]:
        return self._by_name.get(name, {})

    def claim(self, name: str, rank: _Rank, value: T) -> None:
        self._before.setdefault(name, self.holder(name))
        self._by_name.setdefault(name, {})[rank] = value

    def release(self, name: str, rank: _Rank) -> None:
        self._before.setdefault(name, self.holder(name))
        found = self._by_name.get(name, {})
        found.pop(rank, None)
        if not found:
            self._by_name.pop(name, None)

    def take(self) -> Iterator[tuple[str, T | None]]:
        """Give what names are of now, where that is not what it was at the last call."""
        before, self._before = self._before, {}
        for name, had in sorted(before.items(), key=lambda item: item[0]):
            has = self.holder(name)
            if has != had:
                yield name, has


def _rank(service: Service) -> _Rank:
    return _Rank(service.created, (service.namespace, service.route))
