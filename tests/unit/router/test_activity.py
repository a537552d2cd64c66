"""When traffic is said to begin and to end."""

import datetime as dt

from serving.kube import Key
from serving.router.activity import Traffic, look, scaled_clusters
from serving.router.admin import Counts
from tests.fakes.gateway import route

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
QUIET = dt.timedelta(seconds=3)


def said(*counts: tuple[int, int]) -> list[tuple[bool, float] | None]:
    """Look once a second; what is said at each look: busy, and how long ago traffic was."""
    traffic: Traffic | None = None
    found: list[tuple[bool, float] | None] = []
    for second, count in enumerate(counts):
        now = START + dt.timedelta(seconds=second)
        traffic, is_news = look(traffic, Counts(*count), now, QUIET)
        found.append((traffic.is_busy, (now - traffic.last).total_seconds()) if is_news else None)
    return found


def test_the_first_look_says_what_it_sees() -> None:
    assert said((7, 0)) == [(False, 0)]
    assert said((7, 1)) == [(True, 0)]


def test_traffic_is_said_when_it_begins_and_when_it_has_been_quiet_for_long_enough() -> None:
    assert said((7, 0), (8, 0), (9, 0), (9, 0), (9, 0), (9, 0)) == [
        (False, 0),
        (True, 0),
        None,
        None,
        None,
        (False, 3),
    ]


def test_a_request_now_and_then_is_not_news() -> None:
    assert said((7, 1), (7, 0), (7, 0), (8, 0), (8, 0), (8, 0), (9, 0))[1:] == [None] * 6


def test_a_long_request_is_traffic_though_nothing_is_counted() -> None:
    assert said((7, 1), *[(7, 1)] * 10)[1:] == [None] * 10


def test_an_envoy_that_was_started_again_counts_as_traffic() -> None:
    assert said((7, 0), (0, 0)) == [(False, 0), (True, 0)]


def test_clusters_are_those_on_demand_by_who_sizes_them() -> None:
    found = route("digits", [("a", 5000), ("b", 5000)], unweighted=["c"], on_demand="ac")
    assert scaled_clusters(found) == {
        Key("default", "digits-a"): ["default/digits-a/8080"],
        Key("default", "digits-c"): ["default/digits-c/8080"],
    }
