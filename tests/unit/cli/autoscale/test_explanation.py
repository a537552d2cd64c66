"""The output of `autoscale status` and `explain`, also for incomplete Autoscalers."""

import datetime as dt
import re
from typing import Any

import pytest

from autoscaler import status
from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.target_state import TargetState
from serving import errors
from serving.cli.autoscale import explanation, lookup, summary
from serving.objects import Object
from serving.report_pages import formatting

NOW = dt.datetime(2026, 11, 22, 5, 0, tzinfo=dt.UTC)


def scaler(**status: Any) -> Object:
    return {
        "metadata": {"name": "digits-stable", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "digits-1"},
            "minReplicas": 0,
            "maxReplicas": 10,
        },
        "status": status,
    }


def decided_scaler() -> Object:
    return scaler(
        desiredReplicas=3,
        currentReplicas=3,
        readyReplicas=2,
        reason="for the load expected within 45 s",
        lastScaleTime="2026-11-22T04:58:00Z",
        decision={
            "time": "2026-11-22T04:58:00Z",
            "rule": "Forecast",
            "metric": "QPS",
            "needed": 3,
            "rate": 11.0,
            "capacity": 5.0,
            "backlog": 4,
            "startupSeconds": 40,
            "schedule": "office",
            "forecast": {"horizonSeconds": 45, "lower": 9.5, "median": 12, "upper": 14.2},
        },
        decisions=[
            {
                "time": "2026-11-22T04:58:00Z",
                "fromReplicas": 2,
                "toReplicas": 3,
                "reason": "Forecast",
                "message": "more is coming",
            },
            {
                "time": "2026-11-22T03:58:00Z",
                "fromReplicas": 0,
                "toReplicas": 2,
                "reason": "Woken",
                "message": "a request waits",
            },
        ],
        metrics=[
            {"name": "QPS", "value": 11.0, "needed": 3},
            {"name": "PromQL/jobs", "target": 5, "message": "no values for 70 s"},
        ],
        learned={
            "capacity": {"rate": 5, "concurrency": 4, "source": "Learned"},
            "startupSeconds": 40,
            "keepAliveSeconds": 300,
        },
        signals=[
            {"source": "gateway-a", "healthy": True},
            {"source": "gateway-b", "healthy": False, "message": "no answer for 2 min"},
        ],
    )


def explained(autoscaler: Object) -> str:
    return explanation.explanation(autoscaler, NOW)


@pytest.mark.parametrize(
    "sentence",
    [
        "digits-stable wants 3 replicas of deployment/digits-1, 2 ready, since 2m; between 0 and 10.",
        "Why: for the load expected within 45 s.",
        "The binding rule: Forecast.",
        "The bounds are those of the schedule office.",
        "Load when that was decided, 2m ago:",
        "11 units of work arrive per second",
        "One replica takes 5 per second (learned from load and latency).",
        "4 requests wait beyond what the replicas work on.",
        "The metric that asks for the most replicas is QPS.",
        "Within 45 s a load of 14.2 per second at most is expected (median 12, 10 % quantile 9.5).",
        "That is 14.2 / 5 = 2.84 replicas, before backlog, limits and what is held: 3 are needed.",
        "A replica that is ordered now is ready within 40 s.",
        "Without a request for 5 min, the last replicas go.",
        "gateway-b  NO       no answer for 2 min",
        "0 -> 2",
        "no values for 70 s",
    ],
)
def test_explanation_has_the_values_of_the_status(sentence: str) -> None:
    assert sentence in explained(decided_scaler())


@pytest.mark.parametrize(
    ("capacity", "source"),
    [
        (Capacity(10.0, 2.0), "10 per second  measured, in a CapacityProfile"),
        (None, "per second  learned from load and latency"),
    ],
    ids=["profile", "learned"],
)
def test_explanation_has_learned_values_and_forecast_interval(capacity: Capacity | None, source: str) -> None:
    scaled = TargetState(PolicyConfig(0, 9, capacity=capacity))
    for step in range(60):
        now = NOW.timestamp() + 5 * step
        load = Load(now - 5, now, 50.0, 50.0, 50.0, 3.0, 0.0, 0.1)
        decision = scaled.decide(Observation(now, Replicas(2, 2, started=(42.0,) if step == 3 else ()), load))
    learned, band = scaled.learned_status(now), decision.forecast
    assert learned is not None
    assert band is not None
    state = status.build(
        status.StatusContent(decision, 2, 2, [], learned=learned), {}, 1, "2026-11-22T05:00:00Z"
    )
    text = explained(scaler(**state))
    assert source in re.sub(r" {3,}", "  ", text)
    assert re.search(r"start-up +42 s +a high quantile of its starts", text)
    assert re.search(r"keep-alive +\S.* +idle time before the last replicas go", text)
    assert "A replica that is ordered now is ready within 42 s." in text
    for figure in (band.lower, band.median, band.upper):
        assert formatting.number(status.rounded(figure)) in text
    assert "10 % quantile" in text


def test_explanation_without_a_decision_has_the_reason() -> None:
    expected = "digits-stable wants deployment/digits-1 between 0 and 10 replicas"
    assert explained(scaler()) == f"{expected}, and has not decided anything yet."


@pytest.mark.parametrize("field", sorted(decided_scaler()["status"]))
def test_explanation_is_possible_without_any_single_field(field: str) -> None:
    lacking = decided_scaler()
    del lacking["status"][field]
    assert explained(lacking).startswith("digits-stable wants")


@pytest.mark.parametrize("field", sorted(decided_scaler()["status"]["decision"]))
def test_explanation_is_possible_without_any_part_of_the_decision(field: str) -> None:
    lacking = decided_scaler()
    del lacking["status"]["decision"][field]
    assert explained(lacking).startswith("digits-stable wants")


def test_explanation_names_the_limit_when_the_count_is_below_the_need() -> None:
    bound = decided_scaler()
    bound["status"]["decision"] |= {"needed": 14, "rule": "MaxReplicas"}
    bound["status"]["desiredReplicas"] = 10
    assert "The load asks for 14 replicas; the rule makes it 10." in explained(bound)


def test_explanation_has_the_withheld_decision_when_observing() -> None:
    observed = decided_scaler()
    observed["spec"]["prediction"] = {"mode": "Observe"}
    assert "decisions are reported, and not applied" in explained(observed)


def test_explanation_has_the_conditions_that_are_false() -> None:
    broken = scaler(
        conditions=[
            {"type": "Ready", "status": "False", "reason": "TargetNotFound", "message": "no Deployment"}
        ]
    )
    assert "Ready is False: TargetNotFound: no Deployment" in explained(broken)


def test_row_has_the_numbers_of_the_decision() -> None:
    assert summary.row(decided_scaler()) == [
        "digits-stable",
        "deployment/digits-1",
        0,
        10,
        3,
        2,
        3,
        "11",
        "14.2",
        "5",
        "Forecast",
        "for the load expected within 45 s",
    ]


def test_row_is_unknown_when_the_autoscaler_has_no_status() -> None:
    lines = summary.status([scaler()]).splitlines()
    assert lines[1].split() == ["digits-stable", "deployment/digits-1", "0", "10", *["N/A"] * 8]


def test_line_of_a_followed_autoscaler_leaves_out_unknown_values() -> None:
    assert summary.line(scaler()) == "digits-stable: nothing decided yet"
    assert summary.line(scaler(desiredReplicas=1, reason="held")) == "digits-stable: desired 1; held"


@pytest.mark.parametrize(("name", "own"), [("x", "x"), ("digits/stable", "digits-stable")])
def test_a_predictor_is_looked_up_by_its_inference(name: str, own: str) -> None:
    assert lookup.own_name(name) == own


@pytest.mark.parametrize("name", ["a/", "/b", "a/b/c"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(errors.UserError, match="neither the name of an Autoscaler nor INFERENCE/PREDICTOR"):
        lookup.own_name(name)
