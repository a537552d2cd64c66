"""Which reports of activators count."""

import datetime as dt
from collections.abc import Sequence

import pytest

from autoscaler.signals import held_requests
from serving import clock
from serving.objects import Object

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOLD_SECONDS = 240.0


def ago(seconds: float) -> str:
    return clock.rfc3339_micro(NOW - dt.timedelta(seconds=seconds))


def counted(demand: Sequence[Object], *, live: str = "", expired: str = "") -> int:
    """Return the count of reports, with these gateways by their Leases."""
    gateways = frozenset(live.split()), frozenset(expired.split())
    return held_requests.count({"status": {"demand": demand}}, *gateways, NOW, HOLD_SECONDS)


def held(last_request: float, reporter: str = "activator-g", **gateways: str) -> int:
    """Return the count of a report of three requests, whose last arrived so many seconds ago."""
    entry = {"reporter": reporter, "inFlight": 3, "lastRequestTime": ago(last_request)}
    return counted([entry], **gateways)


@pytest.mark.parametrize(("last_request", "count"), [(1, 3), (239, 3), (241, 0), (100_000, 0)])
def test_a_report_without_a_lease_counts_no_longer_than_requests_are_held(
    last_request: float, count: int
) -> None:
    assert held(last_request) == count
    assert held(last_request, live="other") == count


def test_a_report_counts_for_as_long_as_its_gateway_lives() -> None:
    assert held(100_000, live="g") == 3, "a replica may work on them"
    assert held(1, expired="g") == 0


def test_a_report_of_another_reporter_is_no_activators() -> None:
    assert held(1, "gateway-g", live="g") == 0


def test_reports_without_times_count_and_an_empty_status_has_none() -> None:
    demand = [{"reporter": "activator-a", "inFlight": 2}, {"reporter": "activator-b"}]
    assert counted(demand) == 2
    assert counted([]) == 0
