import math
from typing import Any

import numpy as np
import pytest

from serving.resources.tuning.experiment import Constraint, Objective, ProfilingExperimentSpec, Setting
from tuner import trial_record
from tuner.observation import MOST_MARGIN, problem_of
from tuner.search.problem import TrialObservation
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


def observed(
    body: dict[str, Any], objective: Objective = SPEC.objective, constraints: list[Constraint] | None = None
) -> TrialObservation | None:
    record = {"metadata": {"name": "pe-1"}, **body}
    return trial_record.read(
        record, SPACE, objective, SPEC.constraints if constraints is None else constraints
    ).observation


def test_observation_has_objective_margins_and_their_noise():
    observation = observed(trial(result=window()))
    assert observation is not None
    assert observation.index == ROW
    assert observation.log_objective == pytest.approx(math.log(200 * 3600 / 2))
    assert observation.noise == pytest.approx(math.log(210 / 190) / 3.92)
    assert observation.margins == (pytest.approx(math.log(0.5)), -MOST_MARGIN)
    assert observation.margin_noise == pytest.approx(math.log(0.055 / 0.045) / 3.92)
    assert observation.seconds == 30
    assert observation.feasible


def test_observation_has_the_scatter_of_windows():
    assert [observed(trial(result=window(**more))).scatter for more in ({}, {"scatter": 0.2})] == [0.0, 0.2]


def test_clipped_margin_keeps_its_ratio_to_the_noise():
    far = window(
        latencies=[{"metric": "latency", "percentile": 99, "value": 1e-4, "low": 2e-5, "high": 5e-4}]
    )
    observation = observed(trial(result=far), constraints=SPEC.constraints[:1])
    assert observation is not None
    assert observation.margins == (-MOST_MARGIN,)
    sure = math.log(1e-4 / 0.1) / (math.log(5e-4 / 2e-5) / 3.92)
    assert observation.margins[0] / observation.margin_noise == pytest.approx(sure)


def test_unbounded_end_does_not_count_as_noise():
    few = window(
        latencies=[{"metric": "latency", "percentile": 99, "value": 0.05, "low": 0.04, "high": 30.0}]
    )
    observation = observed(trial(result=few))
    assert observation is not None
    assert observation.margin_noise == pytest.approx(2 * math.log(0.05 / 0.04) / 1.96)


def test_minimised_objective_is_negated():
    observation = observed(
        trial(result=window()), Objective(type="minimize", objective_metric_name="latency")
    )
    assert observation is not None
    assert observation.log_objective == pytest.approx(-math.log(0.05))


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
def test_spec_that_does_not_run_is_an_observation_with_its_cause(reason, cause):
    observation = observed(trial(reason))
    assert observation is not None
    assert observation.cause == cause
    assert not observation.boots


@pytest.mark.parametrize("reason", ["LoadFailed", "Interrupted"])
def test_trial_without_information_about_its_spec_is_no_observation(reason):
    assert observed(trial(reason)) is None


@pytest.mark.parametrize("phase", ["", "Pending", "Measuring"])
def test_running_trial_is_no_observation(phase):
    assert observed({**trial(), "status": {"phase": phase}}) is None


@pytest.mark.parametrize("metric", ["throughputPerCost", "cost"])
def test_trial_without_answers_counts_as_a_crash(metric):
    nothing = window(throughput=estimate(0), latencies=[])
    objective = Objective.model_validate({"type": "minimize", "objectiveMetricName": metric})
    assert observed(trial(result=nothing), objective).cause == "crash"
    assert observed(trial()).cause == "crash"


def test_missing_latency_breaks_its_bound():
    observation = observed(trial("BreaksConstraint", result=window(latencies=[])))
    assert observation is not None
    assert observation.margins[0] == MOST_MARGIN
    assert not observation.feasible


def test_trial_that_breaks_a_constraint_at_every_load_has_margins_and_no_objective():
    slow = window(latencies=[{"metric": "latency", "percentile": 99, **estimate(0.2, 0.01)}])
    observation = observed(trial("BreaksConstraint", result=slow))
    assert observation is not None
    assert (observation.log_objective, observation.noise) == (None, 0.0)
    assert observation.margins[0] == pytest.approx(math.log(2))
    assert (observation.boots, observation.feasible) == (True, False)


def test_trial_that_broke_its_constraint_by_failures_is_not_feasible():
    fast = window(errors=40, requests=1000, errorRate=estimate(0.009))
    observation = observed(trial("BreaksConstraint", result=fast))
    assert observation is not None
    assert max(observation.margins) > 0
    assert not observation.feasible


def test_error_rate_is_compared_with_its_bound():
    observation = observed(trial(result=window(errorRate=estimate(0.02, 0.005))))
    assert observation is not None
    assert observation.margins[1] == pytest.approx(math.log(2))


def test_observation_has_the_purpose_and_the_early_stop():
    observation = observed(trial("CannotBeatBest", "Confirm", result=window()))
    assert observation is not None
    assert observation.confirms
    assert observation.censored


def test_problem_has_axes_prices_and_bounds_of_the_space():
    problem = problem_of(SPEC, SPACE, np.full(8, 2.0))
    assert problem.size == SPACE.size == 8
    assert problem.ordered == (True, True, False)
    assert problem.resource == (True, True, False)
    assert problem.log_bounds == (pytest.approx(math.log(0.1)), pytest.approx(math.log(0.01)))
    assert problem.log_cost[0] == pytest.approx(math.log(2))
    assert problem.expected == pytest.approx(scaling.of_space(SPACE, "throughputPerCost", problem.log_cost))
    assert SPACE.settings(ROW)[0] == Setting(category="resource", name="cpu", value="1")
