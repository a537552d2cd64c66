"""The metrics pages that gateways' Leases name."""

import datetime as dt
from typing import Any

import pytest

from serving import clock
from serving.resources import leases

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
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
    assert leases.pages(named, NOW) == {
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
    read = leases.pages([lease(pages=url, activator_pages=URL)], NOW)["a"]
    assert (read.gateway, read.activator) == ("", URL)
    assert read.problem.startswith("slipway.dev/pages of its Lease is not an http URL: ")
    assert "secret" not in read.problem
    read = leases.pages([lease(pages=URL, activator_pages=url)], NOW)["a"]
    assert (read.gateway, read.activator) == (URL, "")
    assert read.problem.startswith("slipway.dev/activator-pages of its Lease is not an http URL: ")


def test_lease_of_a_gateway_without_an_annotation_is_a_problem() -> None:
    assert leases.pages([lease()], NOW)["a"].problem == "its Lease has no annotation slipway.dev/pages"
