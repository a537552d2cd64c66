import numpy as np
import pytest

from autoscaler.simulate.pool import ReplicaPool
from autoscaler.simulate.startup import Startup, around, fleet


def pool(ready: int = 0, startup: Startup | None = None, limit: int = 10) -> ReplicaPool:
    fixed = startup or around(10, jitter=0, failure_share=0)
    return ReplicaPool(fixed, np.random.default_rng(1), limit, ready, 0.0)


def test_a_replica_is_ready_after_its_start_and_paid_from_its_order() -> None:
    replicas = pool()
    replicas.ask(2)
    replicas.advance(9)
    assert (replicas.ready, replicas.alive, replicas.seconds) == (0, 2, 18)
    replicas.advance(10)
    assert replicas.ready == 2
    assert replicas.observed().started == (10, 10)


def test_started_replicas_are_seen_once() -> None:
    replicas = pool()
    replicas.ask(1)
    replicas.advance(20)
    replicas.observed()
    assert replicas.observed().started == ()


def test_a_replica_stays_paid_when_its_start_ends_between_two_looks() -> None:
    replicas = pool()
    replicas.ask(1)
    replicas.advance(100)
    assert replicas.seconds == 100


def test_the_youngest_start_is_removed_before_ready_replicas() -> None:
    replicas = pool(ready=2)
    replicas.ask(3)
    replicas.advance(4)
    replicas.ask(4)
    replicas.ask(3)
    assert replicas.observed().starting == (0,)
    replicas.ask(1)
    assert (replicas.ready, replicas.alive) == (1, 1)


def test_no_more_replicas_are_ordered_than_there_is_room_for() -> None:
    replicas = pool(limit=3)
    replicas.ask(50)
    assert (replicas.alive, replicas.desired) == (3, 3)


def test_a_failed_start_begins_again_and_is_seen() -> None:
    replicas = pool(startup=around(10, jitter=0, failure_share=1))
    replicas.ask(1)
    replicas.advance(25)
    seen = replicas.observed()
    assert (seen.ready, seen.failed, seen.starting) == (0, (10, 10), (20,))
    assert replicas.seconds == 25


def test_actions_are_changes_only() -> None:
    replicas = pool(ready=1)
    replicas.ask(1)
    replicas.ask(3)
    replicas.ask(3)
    replicas.advance(5)
    replicas.ask(2)
    assert replicas.actions == [(0, 2), (5, -1)]


def test_startup_times_are_around_the_given_value() -> None:
    draws = np.random.default_rng(2)
    times = [around(60).draw(draws) for _ in range(2000)]
    assert np.median(times) == pytest.approx(60, rel=0.02)
    assert np.std(np.log(times)) == pytest.approx(0.1, rel=0.1)


def test_starts_of_the_fleet_have_the_measured_quantiles() -> None:
    draws = np.random.default_rng(2)
    law = fleet()
    times = [law.draw(draws) for _ in range(4000)]
    assert 6 < np.quantile(times, 0.1) < 12
    assert np.median(times) == pytest.approx(law.typical, rel=0.1)
    assert np.quantile(times, 0.9) == pytest.approx(47.7, rel=0.1)
