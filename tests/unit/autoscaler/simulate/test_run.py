from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.delivery import Delivery
from autoscaler.simulate.policy import UTILISATION, WAITING
from autoscaler.simulate.run import Run, run
from autoscaler.simulate.scores import oracle_scores, scores
from autoscaler.simulate.startup import Startup, around
from autoscaler.simulate.workloads.load import Flow, Replica, Requests
from autoscaler.simulate.workloads.workload import Workload

PROMPT = Delivery(shortest=0, longest=0, missing=0)
EXACT = around(30, jitter=0, failure_share=0)


@dataclass
class Planned:
    """Returns planned counts by time, and records its observations."""

    plan: list[tuple[float, int]]
    interval: float = 5.0
    reason: str = "Planned"
    seen: list[Observation] = field(default_factory=list)

    def decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        counts = [replicas for since, replicas in self.plan if since <= observation.now - 1000]
        return Decision(counts[-1], self.reason, "as planned")


def steady(rate: float = 10, seconds: int = 1800, lead: int = 600) -> Workload:
    counts = np.full(seconds, rate)
    return Workload("steady", 1000.0, seconds, Flow(counts, counts), Replica(2.0, 4, 2.0), 2.0, lead=lead)


def played(workload: Workload, policy: Planned, delivery: Delivery = PROMPT) -> Run:
    return run(workload, EXACT, lambda _: policy, limit=100, seed=1, delivery=delivery)


def test_enough_replicas_have_no_violation_and_cost_their_time() -> None:
    workload = steady()
    score = scores(workload, played(workload, Planned([(0, 8)])), workload.oracle(30))
    assert score.violations == 0
    assert score.replica_hours == pytest.approx(8 * 1200 / 3600)
    assert score.over_oracle == pytest.approx(8 / 5)
    assert score.over_work == pytest.approx(8 / 5)
    assert score.overshoot == pytest.approx(8 / 5)
    assert (score.actions, score.requests) == (0, 12_000)


def test_too_few_replicas_make_every_request_wait_until_it_gives_up() -> None:
    workload = steady()
    score = scores(workload, played(workload, Planned([(0, 4)])), workload.oracle(30))
    assert score.violations > 99
    assert score.windows == 100
    assert score.p50 > 100


def test_a_cold_target_makes_requests_wait_for_a_start() -> None:
    workload = steady(lead=0)
    score = scores(workload, played(workload, Planned([(0, 0), (600, 10)])), workload.oracle(30))
    assert score.cold == pytest.approx(100 * 630 / 1800, abs=0.5)
    assert score.actions == pytest.approx(2 / 0.5)


def test_loads_of_all_observations_add_up_and_leave_no_gap() -> None:
    policy = Planned([(0, 8)])
    played(steady(), policy, Delivery())
    loads = [seen.load for seen in policy.seen if seen.load is not None]
    assert loads[0].start == 1000
    assert all(after.start == before.end for before, after in pairwise(loads))
    assert sum(load.arrivals for load in loads) == pytest.approx(10 * (loads[-1].end - 1000))


def test_no_reading_is_seen_before_it_arrives() -> None:
    policy = Planned([(0, 8)])
    played(steady(), policy, Delivery())
    assert all(seen.now - seen.load.end >= 5 for seen in policy.seen if seen.load is not None)
    assert all(seen.gauges == {} for seen in policy.seen if seen.load is None)


def test_utilisation_and_latency_are_those_of_the_load() -> None:
    policy = Planned([(0, 10)])
    played(steady(), policy)
    load, gauges = policy.seen[-1].load, policy.seen[-1].gauges
    assert load is not None
    assert gauges[UTILISATION] == pytest.approx(0.5)
    assert gauges[WAITING] == 0
    assert load.latency == pytest.approx(2.0)
    assert load.in_flight == pytest.approx(20)


def test_requests_are_held_while_no_replica_is_ready() -> None:
    policy = Planned([(0, 0)])
    played(steady(), policy)
    load = policy.seen[20].load
    assert load is not None
    assert load.held > 0
    assert load.in_flight == 0
    assert policy.seen[20].gauges == {}


def test_starting_replicas_are_seen_by_unix_time() -> None:
    policy = Planned([(0, 8), (60, 9)])
    played(steady(), policy)
    seen = next(observation for observation in policy.seen if observation.now == 1070)
    assert seen.replicas.starting == (1060,)


def test_the_same_seed_gives_the_same_run() -> None:
    workload = steady()
    law = around(30)
    plan = [(0, 4), (100, 8), (900, 6)]
    first, again, other = (
        run(workload, law, lambda _: Planned(plan), limit=100, seed=seed).waits.seconds for seed in (7, 7, 8)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_change_of_direction_is_a_reversal_only_within_ten_minutes() -> None:
    workload = steady(seconds=4200)
    soon = scores(workload, played(workload, Planned([(0, 8), (700, 9), (1000, 8)])), workload.oracle(30))
    late = scores(workload, played(workload, Planned([(0, 8), (700, 9), (1700, 8)])), workload.oracle(30))
    assert (soon.actions, soon.reversals) == (2, 1)
    assert (late.actions, late.reversals) == (2, 0)


def test_timeline_has_the_fields_of_the_page() -> None:
    workload = steady()
    result = run(
        workload, EXACT, lambda _: Planned([(0, 8)]), limit=100, seed=1, delivery=PROMPT, timeline=True
    )
    assert result.timeline[-1].ready == 8
    assert result.timeline[-1].rate == pytest.approx(10)
    assert [point.time for point in result.timeline] == sorted(point.time for point in result.timeline)


def test_draining_replicas_are_paid_until_they_end() -> None:
    requests = Requests(np.array([300.0]), np.ones(1), np.array([200.0]))
    workload = Workload("long", 1000.0, 900, requests, Replica(1.0, 1, 200.0), 30.0, min_replicas=0, lead=0)
    run_ = played(workload, Planned([(0, 1), (310, 0)]))
    first = 310
    assert run_.replica_seconds == pytest.approx(first + 190, abs=6)


def test_the_oracle_and_the_peak_are_scored_like_runs() -> None:
    workload = steady()
    oracle = workload.oracle(30)
    by_name = oracle_scores(workload, oracle)
    assert by_name["oracle"].over_oracle == pytest.approx(1)
    assert by_name["static peak"].replica_hours == pytest.approx(5 * 1200 / 3600)
    assert workload.limit() == 15


def test_a_request_at_zero_orders_a_replica_between_two_decisions_only_when_readings_are_immediate() -> None:
    requests = Requests(np.array([301.5]), np.ones(1), np.array([1.0]))
    workload = Workload("rare", 1000.0, 900, requests, Replica(1.0, 1, 1.0), 2.0, min_replicas=0, lead=0)
    plan = [(0, 0), (310, 1)]
    waits = [
        float(played(workload, Planned(plan, interval=310), Delivery(immediate=immediate)).waits.seconds[0])
        for immediate in (True, False)
    ]
    assert waits == pytest.approx([302 + 30 - 301.5, 310 + 30 - 301.5])


def test_a_policy_decides_on_the_held_requests_when_the_first_arrives_at_zero() -> None:
    times = np.array([301.5, 301.6, 301.7])
    requests = Requests(times, np.ones(3), np.ones(3))
    workload = Workload("rare", 1000.0, 900, requests, Replica(1.0, 1, 1.0), 2.0, min_replicas=0, lead=0)
    policy = Planned([(0, 0), (302, 3)], interval=300)
    woken = played(workload, policy, Delivery(immediate=True))
    held = [(seen.now, seen.load.held) for seen in policy.seen if seen.load is not None and seen.load.held]
    assert held[0] == (1302, 3)
    assert woken.actions == ((302, 3),)


def test_a_wake_and_a_start_are_late_by_at_most_a_step_when_requests_are_routed() -> None:
    requests = Requests(np.array([301.5]), np.ones(1), np.array([1.0]))
    replica = Replica(1.0, 1, 1.0)
    workload = Workload("rare", 1000.0, 900, requests, replica, 2.0, min_replicas=0, lead=0, routed=True)
    short = Startup("short", 4.3, lambda _: 4.3, 0.0)
    woken = run(
        workload,
        short,
        lambda _: Planned([(0, 0), (301, 1)], interval=300),
        limit=9,
        seed=1,
        delivery=Delivery(immediate=True),
    )
    assert 4.3 <= woken.waits.seconds[0] <= 4.3 + 2 * workload.step


def test_a_start_that_ends_has_a_decision_at_once_only_when_readings_are_immediate() -> None:
    for immediate, times in ((True, [0, 300, 330, 600]), (False, [0, 300, 600])):
        policy = Planned([(0, 8), (300, 9)], interval=300)
        played(steady(seconds=700), policy, Delivery(immediate=immediate))
        assert [seen.now - 1000 for seen in policy.seen] == times


def test_decisions_are_rare_without_requests_only_when_the_last_is_of_a_steady_kind() -> None:
    requests = Requests(np.array([151.5]), np.ones(1), np.array([1.0]))
    workload = Workload("rare", 1000.0, 200, requests, Replica(1.0, 1, 1.0), 2.0, lead=0)
    for reason, times in (("KeepAlive", [0, 60, 120, 155]), ("Held", list(range(0, 200, 5)))):
        policy = Planned([(0, 1)], reason=reason)
        played(workload, policy, Delivery(every=5, shortest=0, longest=0, missing=0, idle_seconds=60))
        assert [seen.now - 1000 for seen in policy.seen] == times


def test_a_reading_after_a_silence_has_its_idle_seconds() -> None:
    requests = Requests(np.array([151.5]), np.ones(1), np.array([1.0]))
    workload = Workload("rare", 1000.0, 200, requests, Replica(1.0, 1, 1.0), 2.0, lead=0)
    policy = Planned([(0, 1)], reason="KeepAlive")
    played(workload, policy, Delivery(every=5, shortest=0, longest=0, missing=0, idle_seconds=60))
    loads = [seen.load for seen in policy.seen if seen.load is not None]
    assert [(load.seconds, load.idle, load.arrivals) for load in loads] == [
        (60, 60, 0),
        (60, 60, 0),
        (35, 30, 1),
    ]
