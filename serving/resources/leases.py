"""The gateways' Leases: which gateways live, and which of them serve. Pure."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from serving import clock

NOT_SERVING_ANNOTATION = "slipway.dev/not-serving"
"""On a gateway's Lease: why the gateway serves no requests."""
LEASE_PREFIX = "slipway-gateway-"
DEFAULT_SECONDS = 15


def named(leases: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the gateways that have a Lease, expired or not."""
    names = (lease["metadata"]["name"] for lease in leases)
    return frozenset(name.removeprefix(LEASE_PREFIX) for name in names if name.startswith(LEASE_PREFIX))


def live(leases: Iterable[Mapping[str, Any]], now: dt.datetime) -> frozenset[str]:
    """Return the names of the gateways whose Lease has not expired at `now`."""
    return frozenset(
        lease["metadata"]["name"].removeprefix(LEASE_PREFIX)
        for lease in leases
        if lease["metadata"]["name"].startswith(LEASE_PREFIX) and expiry(lease) > now
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
