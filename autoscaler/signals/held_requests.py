"""Held requests, as activators report them in `Autoscaler.status.demand`, between two readings. Pure."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from serving.resources import leases, names


def expired_gateways(gateway_leases: Iterable[Mapping[str, Any]], now: dt.datetime) -> frozenset[str]:
    """Return the names of gateways whose Lease has expired; a gateway without a Lease is not among them."""
    return frozenset(
        lease["metadata"]["name"].removeprefix(leases.LEASE_PREFIX)
        for lease in gateway_leases
        if lease["metadata"]["name"].startswith(leases.LEASE_PREFIX) and leases.expiry(lease) <= now
    )


def count(autoscaler: Mapping[str, Any], without: frozenset[str]) -> int:
    """Return the number of held requests; those of activators beside the gateways `without` are lost."""
    prefix = names.ACTIVATOR_REPORTER
    return sum(
        int(entry.get("inFlight", 0))
        for entry in (autoscaler.get("status") or {}).get("demand") or []
        if entry["reporter"].startswith(prefix) and entry["reporter"].removeprefix(prefix) not in without
    )
