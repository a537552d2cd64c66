"""The live gateways, which have an unexpired Lease. Pure."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from serving import clock

LEASE_PREFIX = "slipway-gateway-"
DEFAULT_SECONDS = 15


def live(leases: Iterable[Mapping[str, Any]], now: dt.datetime) -> frozenset[str]:
    """Return the names of the gateways whose Lease has not expired at `now`."""
    return frozenset(
        lease["metadata"]["name"].removeprefix(LEASE_PREFIX)
        for lease in leases
        if lease["metadata"]["name"].startswith(LEASE_PREFIX) and expiry(lease) > now
    )


def expiry(lease: Mapping[str, Any]) -> dt.datetime:
    """Return the expiry of a Lease; the distant past if it was never renewed."""
    spec = lease.get("spec") or {}
    if not spec.get("renewTime"):
        return dt.datetime.min.replace(tzinfo=dt.UTC)
    seconds = spec.get("leaseDurationSeconds", DEFAULT_SECONDS)
    return clock.parse(spec["renewTime"]) + dt.timedelta(seconds=seconds)
