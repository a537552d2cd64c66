"""Requests that wait at zero, as activators say in an Autoscaler's status: known at once, and not at the next
tick. Pure.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from serving.resources import leases, names


def dead(found: Iterable[Mapping[str, Any]], now: dt.datetime) -> frozenset[str]:
    """Return the names of gateways whose Lease has run out; one without a Lease is not known to be dead."""
    return frozenset(
        lease["metadata"]["name"].removeprefix(leases.LEASE_PREFIX)
        for lease in found
        if lease["metadata"]["name"].startswith(leases.LEASE_PREFIX) and leases.expiry(lease) <= now
    )


def held(autoscaler: Mapping[str, Any], without: frozenset[str]) -> int:
    """Return how many requests wait for the target; those of activators beside these gateways are lost."""
    prefix = names.ACTIVATOR_REPORTER
    return sum(
        int(said.get("inFlight", 0))
        for said in (autoscaler.get("status") or {}).get("demand") or []
        if said["reporter"].startswith(prefix) and said["reporter"].removeprefix(prefix) not in without
    )
