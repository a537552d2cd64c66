"""The earlier experiments of a search: finished, with the same parameters and objective."""

from typing import Any

import pytest

from serving.objects import Object
from tests.objects.tuning import experiments
from tests.objects.tuning.experiments import parameters
from tuner.planning import earlier


def over(name: str, completed: str = "2026-01-01T00:00:00Z", **spec: Any) -> Object:
    status = {"phase": "Succeeded", "completionTime": completed}
    return {**experiments.experiment(name, **spec), "status": status}


def names(experiment: Object, *others: Object, most: int = 8) -> list[str]:
    return [
        candidate["metadata"]["name"]
        for candidate in earlier.candidates(experiment, [experiment, *others], most)
    ]


def test_newest_finished_experiments_are_learned_from() -> None:
    others = [over(f"e{hour}", f"2026-01-01T0{hour}:00:00Z") for hour in (1, 3, 2)]
    running = {**experiments.experiment("running"), "status": {"phase": "Running"}}
    assert names(experiments.experiment(), *others, running, experiments.experiment("new")) == [
        "e3",
        "e2",
        "e1",
    ]
    assert names(experiments.experiment(), *others, most=2) == ["e3", "e2"]


def test_only_named_experiments_are_learned_from_and_none_when_switched_off() -> None:
    others = [over("one"), over("two")]
    assert names(experiments.experiment(warmStart={"experiments": ["two", "three"]}), *others) == ["two"]
    assert names(experiments.experiment(warmStart={"enabled": False}), *others) == []


def test_experiment_of_other_parameters_is_not_learned_from() -> None:
    swapped = parameters(memory=["256Mi"], cpu=["1"])
    others = [
        over("swapped", tunableParameters=swapped),
        over("cpu", tunableParameters=parameters(cpu=["1"])),
    ]
    assert names(experiments.experiment(), *others) == ["swapped"]


LATENCY: Object = {"objectiveMetricName": "latency", "type": "minimize", "percentile": 99}
AT_RATE: Object = {"objectiveMetricName": "costAtRate", "type": "minimize", "rate": "300"}
PER_COST: Object = {"objectiveMetricName": "throughputPerCost", "type": "maximize"}


@pytest.mark.parametrize(
    ("objective", "other", "learned"),
    [
        (PER_COST, LATENCY, []),
        (PER_COST, {**PER_COST, "objectiveMetricName": "throughput"}, []),
        (PER_COST, {}, ["other"]),
        (PER_COST, {**PER_COST, "percentile": 50}, ["other"]),
        (LATENCY, {**LATENCY, "percentile": 50}, []),
        (AT_RATE, {**AT_RATE, "rate": "30"}, []),
        (AT_RATE, {**AT_RATE, "rate": "300.0"}, ["other"]),
    ],
)
def test_experiment_with_another_objective_is_not_learned_from(
    objective: Object, other: Object, learned: list[str]
) -> None:
    assert names(experiments.experiment(objective=objective), over("other", objective=other)) == learned
