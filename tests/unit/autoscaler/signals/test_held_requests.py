"""Which reports of activators count."""

import datetime as dt

import pytest

from autoscaler.signals import held_requests
from serving import clock
from serving.objects import Object
from serving.resources.leases import LEASE_PREFIX

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOLD_SECONDS = 240.0


def ago(seconds: float) -> str:
    return clock.rfc3339_micro(NOW - dt.timedelta(seconds=seconds))


def lease(gateway: str, renewed: float) -> Object:
    """A Lease that was renewed so many seconds ago."""
    spec = {"renewTime": ago(renewed), "leaseDurationSeconds": 15}
    return {"metadata": {"name": f"{LEASE_PREFIX}{gateway}"}, "spec": spec}


def held(last_request: float, *leases: Object, reporter: str = "activator-g") -> int:
    """Return the count of a report of three requests, whose last arrived so many seconds ago."""
    entry = {"reporter": reporter, "inFlight": 3, "lastRequestTime": ago(last_request)}
    return held_requests.count({"status": {"demand": [entry]}}, leases, NOW, HOLD_SECONDS)


@pytest.mark.parametrize(("last_request", "counted"), [(1, 3), (239, 3), (241, 0), (100_000, 0)])
def test_a_report_without_a_lease_counts_no_longer_than_requests_are_held(
    last_request: float, counted: int
) -> None:
    assert held(last_request) == counted
    assert held(last_request, lease("other", 1)) == counted


def test_a_report_counts_for_as_long_as_its_gateway_lives() -> None:
    assert held(100_000, lease("g", 1)) == 3, "a replica may work on them"
    assert held(1, lease("g", 16)) == 0


def test_a_report_of_another_reporter_is_no_activators() -> None:
    assert held(1, lease("g", 1), reporter="gateway-g") == 0


def test_reports_without_times_count_and_an_empty_status_has_none() -> None:
    demand = [{"reporter": "activator-a", "inFlight": 2}, {"reporter": "activator-b"}]
    assert held_requests.count({"status": {"demand": demand}}, [], NOW, HOLD_SECONDS) == 2
    assert held_requests.count({}, [], NOW, HOLD_SECONDS) == 0
