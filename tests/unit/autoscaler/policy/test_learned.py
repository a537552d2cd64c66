import json

import pytest

from autoscaler.decision_values import Band
from autoscaler.observation import Capacity, Load, Replicas
from autoscaler.policy.capacity import CapacityEstimate
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.idle import IdleTimes
from autoscaler.policy.need import Need
from autoscaler.policy.scale_to_zero import idle_need
from autoscaler.policy.startup import MOST_LOST, UNKNOWN, StartupTimes
from autoscaler.policy.window import WindowMaximum

START = 1_700_006_400.0
HOUR = 3600.0


def test_expected_start_is_the_ninth_decile_of_observed_starts() -> None:
    starts = StartupTimes()
    starts.learn([float(seconds) for seconds in range(1, 21)], [])
    assert starts.expected([], START) == 19


def test_expected_start_includes_failed_attempts() -> None:
    starts = StartupTimes()
    starts.learn([], [40.0, 50.0])
    starts.learn([10.0], [])
    assert starts.expected([], START) == 100
    starts.learn([10.0] * 30, [-5.0])
    assert starts.expected([], START) == 10


def test_a_crash_loop_of_hours_counts_for_ten_minutes_at_most() -> None:
    starts = StartupTimes()
    for _ in range(500):
        starts.learn([], [60.0, float("inf"), float("nan")])
    starts.learn([20.0], [])
    assert starts.expected([], START) == 20 + MOST_LOST


def test_starts_are_stuck_when_most_take_three_times_the_expected_time() -> None:
    starts = StartupTimes()
    assert not starts.are_stuck([], START)
    starts.learn([20.0] * 10, [])
    assert not starts.are_stuck([START - 500, START - 30, START - 10], START), "one straggler is no rule"
    assert starts.are_stuck([START - 500, START - 400, START - 10], START)


def test_expected_start_is_the_age_of_the_oldest_start_when_none_has_finished() -> None:
    starts = StartupTimes()
    assert starts.expected([], START) == UNKNOWN
    assert starts.expected([START - 300], START) == 300


def test_starts_are_the_same_when_restored_from_json() -> None:
    starts, restored = StartupTimes(), StartupTimes()
    starts.learn([5.0, 70.0, 20.0], [3.0])
    restored.restore(json.loads(json.dumps(starts.state())))
    assert restored.expected([], START) == starts.expected([], START)


def test_maximum_is_that_of_the_window() -> None:
    window, values = WindowMaximum(60.0), [3, 9, 2, 5, 5, 1, 0, 4, 2, 2, 1, 0, 0, 0]
    for i, value in enumerate(values):
        window.add(float(i), value)
        for seconds in (0, 3, 60):
            assert window.maximum(float(i), seconds) == max(values[max(i - seconds, 0) : i + 1])
    assert window.maximum(200.0, 3) == 0


def test_the_window_forgets_values_when_they_are_older_than_its_longest() -> None:
    window = WindowMaximum(10.0)
    for time, value in ((0.0, 9), (5.0, 4), (20.0, 1)):
        window.add(time, value)
    assert window.maximum(20.0, 1000.0) == 1


def test_window_restarts_when_the_clock_is_set_back() -> None:
    window = WindowMaximum(1000.0)
    window.add(1000.0, 9)
    window.add(500.0, 2)
    assert window.maximum(500.0, 1000.0) == 2


def served(offered: float, replicas: int, limit: float, flight: float) -> Load:
    """Return five seconds of replicas that serve `limit` requests a second each."""
    done = min(offered, limit * replicas)
    return Load(START, START + 5, offered * 5, offered * 5, done * 5, flight, 0.0, flight / done)


@pytest.mark.parametrize("real", [4.0, 8.0])
def test_a_measured_capacity_is_lowered_when_replicas_are_saturated_below_it(real: float) -> None:
    estimate = CapacityEstimate(Capacity(10.0, 10.0))
    for _ in range(100):
        estimate.learn(served(10.0, 1, real, 40.0), 1)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(real, rel=0.05)
    assert estimate.source == "Corrected"


def corrected() -> CapacityEstimate:
    """Return a measured capacity of 10 per second that saturation has corrected to about 5."""
    estimate = CapacityEstimate(Capacity(10.0, 10.0))
    for _ in range(100):
        estimate.learn(served(10.0, 1, 5.0, 40.0), 1)
    return estimate


def test_a_correction_is_dropped_when_another_capacity_was_measured() -> None:
    state = json.loads(json.dumps(corrected().state()))
    same, other = CapacityEstimate(Capacity(10.0, 10.0)), CapacityEstimate(Capacity(20.0, 10.0))
    for estimate in (same, other):
        estimate.restore(state)
    assert same.value == corrected().value
    assert (other.value, other.source) == (Capacity(20.0, 10.0), "Profile")
    del state["measured"]
    other.restore(state)
    assert other.source == "Corrected", "a state of an earlier release"


def test_a_measured_capacity_is_raised_when_replicas_carry_more() -> None:
    estimate = CapacityEstimate(Capacity(10.0, 10.0))
    for _ in range(50):
        estimate.learn(served(30.0, 2, 20.0, 10.0), 2)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(15.0, rel=0.05)


def test_a_measured_capacity_stays_when_replicas_idle() -> None:
    estimate = CapacityEstimate(Capacity(10.0, 10.0))
    for _ in range(50):
        estimate.learn(served(1.0, 2, 10.0, 0.5), 2)
    assert estimate.value == Capacity(10.0, 10.0)
    assert estimate.source == "Profile"


def test_the_capacity_of_a_server_is_learned_when_its_queue_grows() -> None:
    estimate = CapacityEstimate(None)
    assert estimate.value is None
    for offered in range(1, 9):
        for _ in range(5):
            estimate.learn(served(float(offered), 1, 8.0, 0.5 * offered), 1)
    for _ in range(20):
        estimate.learn(served(12.0, 1, 8.0, 60.0), 1)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(8.0, rel=0.3)
    restored = CapacityEstimate(None)
    restored.restore(json.loads(json.dumps(estimate.state())))
    assert restored.value == estimate.value


def test_a_measured_capacity_stays_when_requests_are_long_and_few() -> None:
    """With requests of 40 s, a reading of five seconds has one answer or none: no evidence."""
    estimate = CapacityEstimate(Capacity(1.0, 1.0))
    for i in range(40):
        estimate.learn(Load(START, START + 5, 0, 0, i % 8 == 0, 6.0, 0.0, 80.0), 1)
    assert estimate.value == Capacity(1.0, 1.0)


def test_saturation_is_seen_when_latency_was_never_low() -> None:
    """An endpoint that begins with too few replicas knows no good latency, but its queue grows."""
    estimate, flight = CapacityEstimate(None), 0.0
    for i in range(12):
        flight += 10 * 5 - 8 * 5
        load = Load(START + 5 * i, START + 5 * i + 5, 50, 50, 40, flight, 0.0, flight / 8)
        estimate.learn(load, 1)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(8.0, rel=0.01)


def test_the_first_capacity_is_known_after_ten_answers_and_assumes_no_room() -> None:
    estimate = CapacityEstimate(None)
    estimate.learn(Load(START, START + 5, 150, 150, 9, 141.0, 0.0, 2.6), 1)
    assert estimate.value is None
    estimate.learn(Load(START + 5, START + 10, 150, 150, 51, 240.0, 0.0, 4.0), 1)
    assert estimate.value == Capacity(10.2, 1.0), "requests may have come at the end of the first reading"


def test_capacity_is_that_of_the_time_with_requests_when_they_came_at_the_end_of_a_reading() -> None:
    """Thirty requests per second for 1.5 s to a replica that serves ten."""
    estimate = CapacityEstimate(None)
    estimate.learn(Load(START, START + 5, 45, 45, 15, 30.0, 0.0, 0.5), 1)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(10.0)


def test_capacity_is_learned_from_rare_requests_in_readings_that_begin_idle() -> None:
    estimate = CapacityEstimate(None)
    for i in range(12):
        estimate.learn(Load(START + 60 * i, START + 60 * i + 60, 1, 1, 1, 0.0, 0.0, 0.5), 1)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(2.0)


def test_saturation_before_the_best_latency_was_known_counts_when_it_becomes_known() -> None:
    """One replica carries 10 requests per second; three drain its queue, and then none waits."""
    estimate = CapacityEstimate(None)
    estimate.learn(Load(START, START + 5, 150, 150, 50, 100.0, 0.0, 1.2), 1)
    estimate.learn(Load(START + 5, START + 10, 150, 150, 250, 10.0, 0.0, 4.0), 5)
    estimate.learn(Load(START + 10, START + 15, 150, 150, 155, 5.0, 0.0, 0.2), 5)
    assert estimate.best == 0.2, "the requests of a queue that was drained had waited"
    assert estimate.value is not None
    assert estimate.value.rate == 10.0


def test_work_in_tokens_is_learned_in_tokens() -> None:
    estimate = CapacityEstimate(None)
    for i in range(60):
        load = Load(START + 5 * i, START + 5 * i + 5, 60, 60 * 700.0, 40, 4 + 20 * i, 0.0, 0.5 + 2.5 * i)
        estimate.learn(load, 1)
    assert estimate.value is not None
    assert estimate.value.rate == pytest.approx(8 * 700, rel=0.05)


def regular(period: float, days: int) -> tuple[IdleTimes, float]:
    """Return idle times after a minute of requests in each period, and the time of the next request."""
    idle = IdleTimes()
    for minute in range(days * 24 * 60):
        begin = START + 60 * minute
        idle.observe(begin, begin + 60, is_busy=60 * minute % period == 0)
    return idle, START + days * 24 * HOUR


def test_last_replica_is_kept_while_requests_are_likely_and_removed_after_a_long_silence() -> None:
    idle = IdleTimes()
    for i in range(500):
        idle.observe(START + 60 * i, START + 60 * i + 5, is_busy=True)
    end = START + 60 * 499 + 5
    assert idle.keeps(end + 30, 60.0, 0.5)
    assert not idle.keeps(end + 48 * HOUR, 60.0, 0.5)
    assert 60 < idle.keep_seconds(end, 60.0, 0.5) <= 6 * HOUR


@pytest.mark.parametrize("startup", [5.0, 20.0])
def test_replica_is_kept_until_the_usual_idle_time_is_over(startup: float) -> None:
    idle = IdleTimes()
    for i in range(50):
        idle.observe(START + 605 * i, START + 605 * i + 5, is_busy=True)
    last = START + 605 * 49 + 5
    assert 600 < idle.keep_seconds(last, startup, 0.5) < 800
    assert not idle.prewarms(last + 800, startup, 0.5)


def test_no_replica_is_kept_when_silence_is_longer_than_any_before() -> None:
    idle = IdleTimes()
    idle.observe(START, START + 60, is_busy=True)
    idle.observe(START + 7200, START + 7260, is_busy=True)
    for days in (1, 2, 2.5, 3, 10, 100):
        assert not idle.keeps(START + 7260 + 24 * HOUR * days, 60.0, 0.5)


def test_no_replica_is_kept_or_prewarmed_without_any_request() -> None:
    idle = IdleTimes()
    assert not idle.keeps(START, 60.0, 0.5)
    assert not idle.prewarms(START, 60.0, 0.5)


@pytest.mark.parametrize(("period", "days"), [(HOUR, 4), (6 * HOUR, 40), (24 * HOUR, 40)])
@pytest.mark.parametrize("startup", [60.0, 120.0, 240.0])
def test_replica_is_prewarmed_when_a_start_ends_shortly_before_regular_requests(
    period: float, days: int, startup: float
) -> None:
    idle, due = regular(period, days)
    for before in range(60, int(startup) + 60, 60):
        assert idle.prewarms(due - before, startup, 0.5), before


@pytest.mark.parametrize("startup", [20.0, 60.0, 240.0])
def test_no_replica_is_prewarmed_hours_before_the_usual_time_of_day(startup: float) -> None:
    idle, due = regular(24 * HOUR, 40)
    for hours in (1, 2, 6, 12):
        assert not idle.prewarms(due - hours * HOUR, startup, 0.5), hours


def test_a_prewarmed_replica_is_kept_until_the_request() -> None:
    """The rule that keeps a replica looks hours ahead: for it a start of 20 s is not worth the time."""
    idle, due = regular(HOUR, 40)
    config, need = PolicyConfig(0, 9), Need(0, 0, "Load", "", Band(0.0, 0.0, 0.0, 0.0), 0.0)
    for before in range(60, 0, -5):
        replicas = Replicas(desired=int(before < 60), ready=int(before < 40))
        decided = idle_need(
            need, 0, replicas, idle, config, desired_since=due - 60, now=due - before, startup=20.0
        )
        assert decided.replicas == 1, before
        assert decided.reason == ("KeepAlive" if replicas.desired else "Prewarm")


def test_idle_times_are_the_same_when_restored_from_json() -> None:
    idle, due = regular(HOUR, 2)
    restored = IdleTimes()
    restored.restore(json.loads(json.dumps(idle.state())))
    assert restored.last_request == idle.last_request
    for startup in (10.0, 300.0):
        now = due - 2 / 3 * HOUR
        assert restored.keep_seconds(now, startup, 0.5) == idle.keep_seconds(now, startup, 0.5)
        assert restored.prewarms(now, startup, 0.5) == idle.prewarms(now, startup, 0.5)
