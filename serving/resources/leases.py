"""The gateways' Leases: which gateways live, which of them serve, and where their metrics are. Pure."""

import datetime as dt
import math
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from serving import clock
from serving.system.network import addresses

NOT_SERVING_ANNOTATION = "slipway.dev/not-serving"
"""On a gateway's Lease: why the gateway serves no requests."""
PAGES_ANNOTATION = "slipway.dev/pages"
"""On a gateway's Lease: URL of its metrics page."""
ACTIVATOR_PAGES_ANNOTATION = "slipway.dev/activator-pages"
"""On a gateway's Lease: URL of the metrics page of the activator beside it."""
LEASE_PREFIX = "slipway-gateway-"
DEFAULT_SECONDS = 15
"""Duration of a Lease that names none."""


def named(leases: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the gateways that have a Lease, expired or not."""
    return frozenset(name for name, _ in _by_gateway(leases))


class GatewayPages(NamedTuple):
    """URLs of the metrics pages that a gateway's Lease names; a missing or unusable URL is empty."""

    gateway: str
    activator: str
    problem: str
    """Why a URL is unusable, or the gateway's is missing; else empty. A gateway may have no activator."""


def pages(leases: Iterable[Mapping[str, Any]], live: frozenset[str]) -> dict[str, GatewayPages]:
    """Return the metrics pages of the live gateways by name."""
    return {name: _pages(lease) for name, lease in _by_gateway(leases) if name in live}


def _pages(lease: Mapping[str, Any]) -> GatewayPages:
    annotations = lease["metadata"].get("annotations") or {}
    urls, problems = [], []
    for name in (PAGES_ANNOTATION, ACTIVATOR_PAGES_ANNOTATION):
        url = annotations.get(name) or ""
        if url and not _is_page(url):
            problems.append(
                f"{name} of its Lease is not an http URL: {addresses.without_credentials(url)!r:.200}"
            )
            url = ""
        urls.append(url)
    if not annotations.get(PAGES_ANNOTATION):
        problems.append(f"its Lease has no annotation {PAGES_ANNOTATION}")
    return GatewayPages(urls[0], urls[1], "; ".join(problems))


def _is_page(url: str) -> bool:
    """Whether a URL is http, with a host, and without a login, a query and characters that need an escape."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = url.isprintable() and not set(url) & set(' "<>\\^`{|}@?#')
    return parts.scheme == "http" and is_whole and is_plain


class _Seen(NamedTuple):
    """The renewal of a Lease that a process has seen last."""

    renewed: str
    """`renewTime` of the Lease, by the gateway's clock."""
    at: float
    """Monotonic seconds when the process saw it first."""
    is_first: bool
    """Whether the process has seen no renewal since it first saw the Lease."""


class Renewals:
    """When one process has seen the Leases of gateways renewed, by its own clock.

    As in an election (`serving.kube.election`), the clocks of two machines are not compared. The exception is
    a Lease that was not renewed since this process first saw it: its `renewTime` is compared with the clock
    of this process too, so that a gateway that died earlier does not count as live.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        """By the name of the gateway."""

    def live(self, leases: Iterable[Mapping[str, Any]], now: dt.datetime, moment: float) -> frozenset[str]:
        """Return the names of the gateways whose Lease has not expired.

        Args:
            leases: the present ones. A caller asks more often than they expire, so that it sees each renewal.
            now: the present time.
            moment: the present time in monotonic seconds.
        """
        seen: dict[str, _Seen] = {}
        live = set()
        for name, lease in _by_gateway(leases):
            spec = lease.get("spec") or {}
            renewed = str(spec.get("renewTime") or "")
            seconds = spec.get("leaseDurationSeconds") or DEFAULT_SECONDS
            last = self._seen.get(name, _Seen(renewed, moment, is_first=True))
            seen[name] = last if renewed == last.renewed else _Seen(renewed, moment, is_first=False)
            age = moment - seen[name].at
            if renewed and seen[name].is_first:
                age = max(age, _age(renewed, now))
            if renewed and age < seconds:
                live.add(name)
        self._seen = seen
        return frozenset(live)


def _age(time: str, now: dt.datetime) -> float:
    """Return the seconds since an RFC 3339 time; those since another text are infinite."""
    try:
        return (now - clock.parse(time)).total_seconds()
    except ValueError:  # one Lease that somebody has written must not hide the others
        return math.inf


def problems(leases: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return why gateways serve no requests, by their names; only those that report a reason."""
    return {
        name: text
        for name, lease in _by_gateway(leases)
        if (text := (lease["metadata"].get("annotations") or {}).get(NOT_SERVING_ANNOTATION))
    }


def _by_gateway(leases: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name of the gateway and the Lease, for each Lease of a gateway."""
    for lease in leases:
        name = str(lease["metadata"]["name"])
        if name.startswith(LEASE_PREFIX):
            yield name.removeprefix(LEASE_PREFIX), lease
