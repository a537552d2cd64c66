import math
from typing import Any

import numpy as np
import pytest

from serving.resources.experiment import Constraint, Objective, ProfilingExperimentSpec, Setting
from tuner import trial_record
from tuner.observation import MOST_MARGIN, problem_of
from tuner.search.problem import Observation
from tuner.specs import scaling
from tuner.specs.space import Space

SPEC = ProfilingExperimentSpec.model_validate(
    {
        "target": {"inference": "digits"},
        "tunableParameters": [
            {
                "category": "resource",
                "parameters": [
                    {"name": "cpu", "feasibleSpace": {"list": ["500m", "1"]}},
                    {"name": "memory", "feasibleSpace": {"list": ["256Mi", "1Gi"]}},
                ],
            },
            {
                "category": "env",
                "parameters": [
                    {"name": "MODE", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
                ],
            },
        ],
        "objective": {"type": "maximize", "objectiveMetricName": "throughputPerCost"},
        "constraints": [{"metric": "latency", "atMost": "100ms"}, {"metric": "errorRate", "atMost": "1%"}],
    }
)
SPACE = Space.of(SPEC)
ROW = 5


def estimate(value: float, spread: float = 0.0) -> dict[str, float]:
    return {"value": value, "low": value - spread, "high": value + spread}


def window(**more: Any) -> dict[str, Any]:
    return {
        "level": 4,
        "throughput": estimate(200, 10),
        "errorRate": estimate(0),
        "latencies": [{"metric": "latency", "percentile": 99, **estimate(0.05, 0.005)}],
        **more,
    }


def trial(reason: str = "Measured", purpose: str = "Explore", **status: Any) -> dict[str, Any]:
    phase = "Succeeded" if reason in ("Measured", "CannotBeatBest", "BreaksConstraint") else "Failed"
    settings = [setting.model_dump() for setting in SPACE.settings(ROW)]
    spec = {
        "experiment": "e",
        "number": 1,
        "purpose": purpose,
        "settings": settings,
        "template": {},
        "modelName": "m",
        "costPerHour": 2.0,
    }
    return {"spec": spec, "status": {"phase": phase, "reason": reason, "seconds": 30, **status}}


def said(
    found: dict[str, Any], objective: Objective = SPEC.objective, constraints: list[Constraint] | None = None
) -> Observation | None:
    record = {"metadata": {"name": "pe-1"}, **found}
    return trial_record.read(
        record, SPACE, objective, SPEC.constraints if constraints is None else constraints
    ).observation


def test_a_measured_trial_says_its_objective_its_margins_and_their_noise():
    found = said(trial(result=window()))
    assert found is not None
    assert found.index == ROW
    assert found.log_objective == pytest.approx(math.log(200 * 3600 / 2))
    assert found.noise == pytest.approx(math.log(210 / 190) / 3.92)
    assert found.margins == (pytest.approx(math.log(0.5)), -MOST_MARGIN)
    assert found.margin_noise == pytest.approx(math.log(0.055 / 0.045) / 3.92)
    assert found.seconds == 30
    assert found.feasible


def test_the_scatter_of_windows_is_kept_beside_the_noise_of_the_result():
    assert [said(trial(result=window(**more))).scatter for more in ({}, {"scatter": 0.2})] == [0.0, 0.2]


def test_a_margin_that_is_cut_is_as_sure_as_it_was():
    far = window(
        latencies=[{"metric": "latency", "percentile": 99, "value": 1e-4, "low": 2e-5, "high": 5e-4}]
    )
    found = said(trial(result=far), constraints=SPEC.constraints[:1])
    assert found is not None
    assert found.margins == (-MOST_MARGIN,)
    sure = math.log(1e-4 / 0.1) / (math.log(5e-4 / 2e-5) / 3.92)
    assert found.margins[0] / found.margin_noise == pytest.approx(sure)


def test_an_end_that_nothing_bounds_is_no_noise():
    few = window(
        latencies=[{"metric": "latency", "percentile": 99, "value": 0.05, "low": 0.04, "high": 30.0}]
    )
    found = said(trial(result=few))
    assert found is not None
    assert found.margin_noise == pytest.approx(2 * math.log(0.05 / 0.04) / 1.96)


def test_what_is_minimised_counts_negative():
    found = said(trial(result=window()), Objective(type="minimize", objective_metric_name="latency"))
    assert found is not None
    assert found.log_objective == pytest.approx(-math.log(0.05))


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("OutOfMemory", "memory"),
        ("Crashed", "crash"),
        ("NotReady", "timeout"),
        ("TimedOut", "timeout"),
        ("Refused", "boot"),
    ],
)
def test_a_spec_that_does_not_run_is_a_result(reason, cause):
    found = said(trial(reason))
    assert found is not None
    assert found.cause == cause
    assert not found.boots


@pytest.mark.parametrize("reason", ["LoadFailed", "Interrupted"])
def test_what_says_nothing_of_the_spec_is_no_observation(reason):
    assert said(trial(reason)) is None


@pytest.mark.parametrize("phase", ["", "Pending", "Measuring"])
def test_a_trial_that_runs_is_no_observation(phase):
    assert said({**trial(), "status": {"phase": phase}}) is None


def test_a_trial_that_answered_nothing_crashed():
    nothing = window(throughput=estimate(0), latencies=[])
    assert said(trial(result=nothing)).cause == "crash"
    assert said(trial()).cause == "crash"


def test_a_latency_that_was_not_seen_breaks_its_bound():
    found = said(trial("BreaksConstraint", result=window(latencies=[])))
    assert found is not None
    assert found.margins[0] == MOST_MARGIN
    assert not found.feasible


def test_an_error_rate_is_held_against_its_share():
    found = said(trial(result=window(errorRate=estimate(0.02, 0.005))))
    assert found is not None
    assert found.margins[1] == pytest.approx(math.log(2))


def test_the_purpose_and_an_early_stop_are_kept():
    found = said(trial("CannotBeatBest", "Confirm", result=window()))
    assert found is not None
    assert found.confirms
    assert found.censored


def test_the_problem_has_the_space_s_axes_prices_and_bounds():
    problem = problem_of(SPEC, SPACE, np.full(8, 2.0))
    assert problem.size == SPACE.size == 8
    assert problem.ordered == (True, True, False)
    assert problem.resource == (True, True, False)
    assert problem.log_bounds == (pytest.approx(math.log(0.1)), pytest.approx(math.log(0.01)))
    assert problem.log_cost[0] == pytest.approx(math.log(2))
    assert problem.expected == pytest.approx(scaling.of_space(SPACE, "throughputPerCost", problem.log_cost))
    assert SPACE.settings(ROW)[0] == Setting(category="resource", name="cpu", value="1")
