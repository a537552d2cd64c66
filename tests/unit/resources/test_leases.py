"""Which gateways are live by their Leases, and the metrics pages that these name."""

import datetime as dt
from typing import Any

import pytest

from serving import clock
from serving.resources import leases

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LIVE = frozenset({"a"})
URL = "http://10.0.0.7:9090/metrics"


def lease(name: str = "slipway-gateway-a", age: float = 1.0, **annotations: str) -> dict[str, Any]:
    renewed = clock.rfc3339_micro(NOW - dt.timedelta(seconds=age))
    named = {f"slipway.dev/{key.replace('_', '-')}": url for key, url in annotations.items()}
    return {
        "metadata": {"name": name, "annotations": named},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 15},
    }


def test_pages_are_those_of_live_gateways() -> None:
    named = [
        lease(pages=URL, activator_pages="http://[fd00::7]:9091/metrics"),
        lease("slipway-gateway-dead", age=16.0, pages=URL),
        lease("slipway-controllers", pages=URL),
    ]
    live = leases.Renewals().live(named, NOW, 0.0)
    assert leases.pages(named, live) == {
        "a": leases.GatewayPages(URL, "http://[fd00::7]:9091/metrics", ""),
    }


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.7/metrics",
        "file:///etc/passwd",
        "10.0.0.7:9090/metrics",
        "http:///metrics",
        "http://10.0.0.7:99999/metrics",
        "http://10.0.0.7:0/metrics",
        "http://[10.0.0.7/metrics",
        "http://user:secret@10.0.0.7/metrics",
        "http://10.0.0.7/metrics?all",
        "http://10.0.0.7/metrics#all",
        "http://10.0.0.7/met rics",
        "http://10.0.0.7/metrics\r\nHost: other",
    ],
)
def test_url_is_not_used_and_the_reason_is_given_when_it_is_no_http_url(url: str) -> None:
    read = leases.pages([lease(pages=url, activator_pages=URL)], LIVE)["a"]
    assert (read.gateway, read.activator) == ("", URL)
    assert read.problem.startswith("slipway.dev/pages of its Lease is not an http URL: ")
    assert "secret" not in read.problem
    read = leases.pages([lease(pages=URL, activator_pages=url)], LIVE)["a"]
    assert (read.gateway, read.activator) == (URL, "")
    assert read.problem.startswith("slipway.dev/activator-pages of its Lease is not an http URL: ")


def test_lease_of_a_gateway_without_an_annotation_is_a_problem() -> None:
    assert leases.pages([lease()], LIVE)["a"].problem == "its Lease has no annotation slipway.dev/pages"


class Observed:
    """A process that sees the Lease of a gateway whose clock is so many seconds behind, or ahead."""

    def __init__(self, behind: float) -> None:
        self._behind = behind
        self._renewals = leases.Renewals()
        self._renewed = 0.0

    def renewed_at(self, seconds: float) -> None:
        self._renewed = seconds

    def is_live_at(self, seconds: float) -> bool:
        now = NOW + dt.timedelta(seconds=seconds)
        renewed = NOW + dt.timedelta(seconds=self._renewed - self._behind)
        spec = {"renewTime": clock.rfc3339_micro(renewed), "leaseDurationSeconds": 15}
        stored = {"metadata": {"name": "slipway-gateway-a"}, "spec": spec}
        return self._renewals.live([stored], now, 1000.0 + seconds) == {"a"}


@pytest.mark.parametrize("behind", [-3600.0, 0.0, 15.0, 3600.0])
def test_a_gateway_is_live_for_the_duration_of_its_lease_when_its_clock_is_wrong(behind: float) -> None:
    observed = Observed(behind)
    observed.is_live_at(0)
    observed.renewed_at(5)
    assert observed.is_live_at(5)
    assert observed.is_live_at(19)
    assert not observed.is_live_at(21)
    observed.renewed_at(40)
    assert observed.is_live_at(40)


@pytest.mark.parametrize(("age", "live"), [(1.0, True), (16.0, False), (3600.0, False)])
def test_the_time_of_a_lease_decides_when_no_renewal_was_seen(age: float, *, live: bool) -> None:
    """A gateway that died before this process started is not live again."""
    assert (leases.Renewals().live([lease(age=age)], NOW, 0.0) == {"a"}) == live


def test_a_gateway_that_renews_no_more_is_not_live_when_its_time_is_in_the_future() -> None:
    """A gateway whose clock is ahead died before this process started."""
    renewals, ahead = leases.Renewals(), lease(age=-3600)
    assert renewals.live([ahead], NOW, 0.0) == LIVE
    assert renewals.live([ahead], NOW + dt.timedelta(seconds=14), 14.0) == LIVE
    assert renewals.live([ahead], NOW + dt.timedelta(seconds=20), 20.0) == frozenset()


def test_a_lease_that_was_never_renewed_is_not_valid() -> None:
    unused = {"metadata": {"name": "slipway-gateway-a"}, "spec": {}}
    assert leases.Renewals().live([unused], NOW, 0.0) == frozenset()


@pytest.mark.parametrize("renewed", ["soon", "2026-01-01T00:00:00", "2026-01-01", 5])
def test_a_lease_is_expired_and_hides_no_other_when_its_time_is_not_rfc_3339(renewed: Any) -> None:
    broken = {"metadata": {"name": "slipway-gateway-b"}, "spec": {"renewTime": renewed}}
    assert leases.Renewals().live([broken, lease()], NOW, 0.0) == LIVE


def test_a_lease_has_the_default_duration_when_its_own_is_null() -> None:
    for age, live in ((leases.DEFAULT_SECONDS - 1, LIVE), (leases.DEFAULT_SECONDS + 1, frozenset())):
        unbounded = lease(age=age)
        unbounded["spec"]["leaseDurationSeconds"] = None
        assert leases.Renewals().live([unbounded], NOW, 0.0) == live
