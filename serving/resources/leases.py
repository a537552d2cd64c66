"""The gateways' Leases: which gateways live, which of them serve, and where their metrics are. Pure."""

import datetime as dt
import urllib.parse
from collections.abc import Iterable, Mapping
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


def named(leases: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the gateways that have a Lease, expired or not."""
    names = (lease["metadata"]["name"] for lease in leases)
    return frozenset(name.removeprefix(LEASE_PREFIX) for name in names if name.startswith(LEASE_PREFIX))


class GatewayPages(NamedTuple):
    """The metrics pages that a Lease names; empty URLs for none."""

    gateway: str
    activator: str
    problem: str
    """Why a URL is not used; empty if both may be."""


def pages(leases: Iterable[Mapping[str, Any]], now: dt.datetime) -> dict[str, GatewayPages]:
    """Return the metrics pages of the gateways that are live at `now`, by their names."""
    return {
        lease["metadata"]["name"].removeprefix(LEASE_PREFIX): _pages(lease)
        for lease in leases
        if _is_live(lease, now)
    }


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
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = url.isprintable() and not set(url) & set(' "<>\\^`{|}@?#')
    return parts.scheme == "http" and is_whole and is_plain


def _is_live(lease: Mapping[str, Any], now: dt.datetime) -> bool:
    return bool(lease["metadata"]["name"].startswith(LEASE_PREFIX)) and expiry(lease) > now


def live(leases: Iterable[Mapping[str, Any]], now: dt.datetime) -> frozenset[str]:
    """Return the names of the gateways whose Lease has not expired at `now`."""
    return frozenset(
        lease["metadata"]["name"].removeprefix(LEASE_PREFIX) for lease in leases if _is_live(lease, now)
    )


def problems(leases: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return why gateways serve no requests, by their names; only those that report a reason."""
    return {
        lease["metadata"]["name"].removeprefix(LEASE_PREFIX): text
        for lease in leases
        if (text := (lease["metadata"].get("annotations") or {}).get(NOT_SERVING_ANNOTATION))
    }


def expiry(lease: Mapping[str, Any]) -> dt.datetime:
    """Return the expiry of a Lease; the distant past if it was never renewed."""
    spec = lease.get("spec") or {}
    if not spec.get("renewTime"):
        return dt.datetime.min.replace(tzinfo=dt.UTC)
    seconds = spec.get("leaseDurationSeconds", DEFAULT_SECONDS)
    return clock.parse(spec["renewTime"]) + dt.timedelta(seconds=seconds)
