import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policy import Bounds, Decision, Demand, Target, decide

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
IDLE = dt.timedelta(seconds=60)
ONE = frozenset({"local"})


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def target(wanted: int, ready: int | None = None, up: float | None = 1000) -> Target:
    return Target(wanted, wanted if ready is None else ready, None if up is None else ago(up))


def said(reporter: str, in_flight: int = 0, last: float | None = 1000) -> Demand:
    return Demand(reporter, in_flight, None if last is None else ago(last))


def fixed(wanted: int, minimum: int, maximum: int) -> Decision:
    return decide(target(wanted), Bounds(minimum, maximum, IDLE), [], frozenset(), NOW)


def on_demand(found: Target, *demand: Demand, gateways: frozenset[str] = ONE) -> Decision:
    return decide(found, Bounds(0, 3, IDLE), demand, gateways, NOW)


def test_a_count_within_bounds_is_kept() -> None:
    assert fixed(3, 1, 5).replicas == 3


def test_the_nearest_bound_is_taken_when_outside() -> None:
    assert fixed(0, 1, 5).replicas == 1
    assert fixed(9, 1, 5).replicas == 5


def test_one_replica_comes_at_once_when_requests_wait_at_zero() -> None:
    found = on_demand(target(0, up=None), said("activator-local", 1000), said("gateway-local"))
    assert (found.replicas, found.reason) == (1, "Woken")


def test_zero_stays_when_nothing_waits() -> None:
    assert on_demand(target(0), said("activator-local"), said("gateway-local", 1)).replicas == 0
    assert on_demand(target(0), gateways=frozenset()).replicas == 0


def test_the_last_replicas_go_when_every_gateway_has_been_idle_for_long_enough() -> None:
    found = on_demand(target(2), said("gateway-local", last=60), said("activator-local", last=70))
    assert (found.replicas, found.reason) == (0, "ScaledToZero")


@pytest.mark.parametrize(
    ("demand", "gateways", "found"),
    [
        ([said("gateway-local", 1)], ONE, target(1)),
        ([said("gateway-local"), said("activator-local", 1)], ONE, target(1)),
        ([said("gateway-local", last=59)], ONE, target(1)),
        ([said("gateway-local"), said("activator-local", last=59)], ONE, target(1)),
        ([said("gateway-local")], ONE, target(1, up=59)),
        ([said("gateway-local")], ONE, target(1, ready=0)),
        ([said("gateway-local")], ONE, target(1, up=None)),
        ([said("gateway-local")], frozenset(), target(1)),
        ([], ONE, target(1)),
        ([said("gateway-local")], frozenset({"local", "other"}), target(1)),
        ([said("gateway-local"), said("gateway-other", 1)], frozenset({"local", "other"}), target(1)),
    ],
    ids=[
        "in-flight", "held", "recently", "recently-held", "just-woken", "not-ready", "not-available",
        "no-gateway", "nothing-known", "a-silent-gateway", "another-gateway",
    ],
)  # fmt: skip
def test_replicas_stay_while_it_is_not_certain_that_they_idle(
    demand: list[Demand], gateways: frozenset[str], found: Target
) -> None:
    assert on_demand(found, *demand, gateways=gateways).replicas == 1


def test_a_dead_gateways_last_word_counts_for_nothing() -> None:
    assert on_demand(target(1), said("gateway-local"), said("gateway-dead", 5)).replicas == 0


def test_it_looks_again_when_the_time_has_come() -> None:
    found = on_demand(target(1), said("gateway-local", last=45))
    assert found.look_again == dt.timedelta(seconds=15)
    assert "to zero at 12:00:15 UTC" in found.message


@given(
    st.integers(0, 5), st.integers(0, 3), st.integers(1, 4), st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(["gateway-local", "gateway-x", "activator-local"]), st.integers(0, 2),
                       st.none() | st.floats(0, 200)), max_size=3, unique_by=lambda d: d[0]),
    st.none() | st.floats(0, 200),
)  # fmt: skip
def test_bounds_hold_and_only_what_is_known_to_idle_goes(
    wanted: int, minimum: int, maximum: int, ready: int, demand: list[tuple[str, int, float | None]],
    up: float | None,
) -> None:  # fmt: skip
    bounds = Bounds(min(minimum, maximum), maximum, IDLE)
    told = [said(*d) for d in demand]
    found = decide(target(wanted, ready, up), bounds, told, ONE, NOW)
    assert bounds.minimum <= found.replicas <= bounds.maximum
    if found.replicas == 0 < wanted:
        assert all(d.in_flight == 0 for d in told if d.reporter != "gateway-x")
        assert any(d.reporter == "gateway-local" for d in told)
