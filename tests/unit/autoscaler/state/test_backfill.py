"""Learning from past load, and the parts that a target takes over."""

import pytest

from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.idle import BIN_RATIO, SHORTEST_IDLE
from autoscaler.policy.sizer import Sizer
from autoscaler.state import backfill
from autoscaler.state.backfill import STEP_SECONDS, backfilled_state
from autoscaler.state.target_state import TargetState
from serving.resources import names

CONFIG = PolicyConfig(0, 50, capacity=Capacity(1.0, 1.0))
END = 1_700_006_400.0
"""Midnight, UTC."""
DAY = 86_400.0


def week(level: float = 20.0, days: int = 7) -> dict[float, float]:
    """A quiet load with a peak of tenfold from 8 to 9 o'clock each day."""
    times = [END - i * STEP_SECONDS for i in range(int(days * DAY / STEP_SECONDS))]
    return {time: level * (10 if 8 <= time % DAY / 3600 < 9 else 1) for time in times}


def reading(end: float, rate: float) -> Load:
    return Load(end - 5, end, rate * 5, rate * 5, rate * 5, rate, 0, 1.0)


def test_daily_peak_is_expected_on_the_first_day_after_a_backfill() -> None:
    known, new = TargetState(CONFIG), TargetState(CONFIG)
    known.restore_history(backfilled_state(CONFIG, week()))
    needed = {"known": 0, "new": 0}
    for second in range(5, 8 * 3600, 5):
        now = END + second
        if now < END + 7.9 * 3600:
            continue
        for name, scaled in (("known", known), ("new", new)):
            replicas = Replicas(30, 30, started=(240.0,))
            needed[name] = scaled.decide(Observation(now, replicas, reading(now, 20.0))).needed
    assert needed["known"] > 2 * needed["new"]


def test_missing_and_absurd_steps_are_omitted() -> None:
    rates = week(days=2)
    holes = {time: rate for time, rate in rates.items() if not END - 1.5 * DAY < time < END - DAY}
    assert backfilled_state(CONFIG, rates | {END - 600: 1e300}) == backfilled_state(
        CONFIG, {t: r for t, r in rates.items() if t != END - 600}
    )
    for known in (holes, {}, {END: 0.0}):
        sizer = Sizer(CONFIG)
        sizer.restore(backfilled_state(CONFIG, known))
        assert sizer.decide(Observation(END + 5, Replicas(1, 1), reading(END + 5, 0.5))).replicas >= 1


@pytest.mark.parametrize("minutes", [10, 30, 60])
def test_a_silence_of_the_past_has_its_length_though_steps_are_coarse(minutes: int) -> None:
    every = round(minutes * 60 / STEP_SECONDS)
    count = int(2 * DAY / STEP_SECONDS)
    rates = {END - i * STEP_SECONDS: (1 / STEP_SECONDS if i % every == 0 else 0.0) for i in range(count)}
    counts = backfilled_state(CONFIG, rates)["idle"]["counts"]
    most = counts.index(max(counts))
    assert SHORTEST_IDLE * BIN_RATIO**most <= minutes * 60 < SHORTEST_IDLE * BIN_RATIO ** (most + 1)


def test_busy_past_load_has_no_silence() -> None:
    fresh = Sizer(CONFIG).state()["idle"]["counts"]
    assert backfilled_state(CONFIG, week())["idle"]["counts"] == fresh


def test_starts_and_capacity_learned_locally_are_kept() -> None:
    scaled = TargetState(PolicyConfig(1, 9))
    for now in range(0, 600, 5):
        load = Load(END + now, END + now + 5, 500, 500, 500, 10, 0, 0.1)
        scaled.decide(Observation(END + now + 5, Replicas(5, 5, started=(42.0,)), load))
    before = scaled.learned_state()
    scaled.restore_history(backfilled_state(scaled.config, week()))
    after = scaled.learned_state()
    assert before is not None
    assert after is not None
    assert (after["capacity"], after["startup"]) == (before["capacity"], before["startup"])
    assert after["idle"]["last"] == before["idle"]["last"]
    assert len(after["forecast"]["history"]["levels"]) > len(before["forecast"]["history"]["levels"])


def test_stored_state_is_not_replaced() -> None:
    stored = backfilled_state(CONFIG, {END: 7.0})
    scaled = TargetState(CONFIG, stored)
    scaled.restore_history(backfilled_state(CONFIG, week()))
    assert scaled.saved_state == stored


def test_only_deployments_of_predictors_have_a_query() -> None:
    meta: dict[str, object] = {"namespace": "n", "name": "d"}
    assert backfill.query({"metadata": meta}) is None
    assert backfill.query({"metadata": {**meta, "labels": {names.INFERENCE_LABEL: "i"}}}) is None
    labels = {names.INFERENCE_LABEL: "i", names.PREDICTOR_LABEL: "p"}
    query = backfill.query({"metadata": {**meta, "labels": labels}})
    assert query == (
        'sum(rate(slipway_requests_received_total{namespace="n",inference="i",predictor="p"}[5m]))'
    )
