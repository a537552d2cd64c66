"""Which trials an experiment makes next, by value: from those that it has, its budget, and the search's words."""

from dataclasses import replace

import pytest

from serving.objects import Object
from tests.objects import experiments
from tests.objects.experiments import failed, measured
from tests.objects.planned_experiments import (
    INFERENCE,
    LOST,
    NOW,
    OF_INFERENCE,
    RUNNING,
    condition,
    made,
    status,
    world,
)
from tuner.planning import experiment as planning
from tuner.planning import trial_objects
from tuner.search.decision import Confirm, Explore
from tuner.search.problem import Budget

EXPLORE = Explore((0, 1, 2, 3), 0.2)


def test_as_many_trials_are_made_as_may_run_at_once() -> None:
    assert made(world(parallelism=2), EXPLORE) == [
        ("pe-1", "Explore", "500m 256Mi"),
        ("pe-2", "Explore", "500m 512Mi"),
    ]
    busy = world((0, RUNNING), (1, measured()), parallelism=2)
    assert made(busy, Explore((2, 3), 0.1)) == [("pe-3", "Explore", "1 256Mi")]


def test_the_same_plan_is_made_again_when_nothing_of_it_was_written() -> None:
    found = world((0, measured()), parallelism=2)
    assert planning.plan(found, EXPLORE, NOW) == planning.plan(found, EXPLORE, NOW)


def test_names_of_trials_fit_however_long_the_experiment_is_named() -> None:
    names = {
        trial_objects.trial_name("x" * 63, 7),
        trial_objects.trial_name("x" * 62, 7),
        trial_objects.trial_name("pe", 7),
    }
    assert len(names) == 3
    assert all(len(name) <= 63 for name in names)
    assert "pe-7" in names


def test_the_search_is_not_asked_where_no_trial_could_start() -> None:
    assert planning.search_budget(world((0, RUNNING)), NOW) is None
    assert planning.search_budget(world(suspend=True), NOW) is None
    assert planning.search_budget(world(), NOW) == Budget(10, 1)


def test_the_search_counts_only_trials_that_it_is_told_of() -> None:
    lost = failed("LoadFailed", notes=["LoadRestarted: locust died"])
    found = world((None, measured()), (0, lost), (0, measured()), (1, RUNNING), parallelism=2)
    assert planning.search_budget(found, NOW) == Budget(8, 2)


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"maxNumTrials": 2}, 2),
        ({"maxDuration": "10m"}, 2),
        ({"maxCost": "0.01"}, 2),
    ],
)
def test_nothing_is_started_when_a_budget_is_used_up(spec: Object, taken: int) -> None:
    found = world((0, measured()), (1, measured()), status={"startTime": "2026-01-01T00:00:00Z"}, **spec)
    assert planning.search_budget(found, NOW) == Budget(taken, 1)
    assert made(found, EXPLORE) == []


def test_trials_go_on_while_every_budget_has_something_left() -> None:
    found = world(
        (0, measured()),
        (1, measured()),
        status={"startTime": "2026-01-01T00:00:01Z"},
        maxNumTrials=3,
        maxDuration="10m",
        maxCost="0.0161",
    )
    assert planning.search_budget(found, NOW) == Budget(3, 1)
    assert len(made(found, Explore((2,), 0.1))) == 1


def test_spending_is_of_trials_and_of_their_prices() -> None:
    said = status(world((3, measured()), (0, failed("Crashed"))), Explore((1,), 0.1))
    assert said["spentSeconds"] == 41.0
    assert said["spentCost"] == pytest.approx(36 / 3600 * 1.05 + 5 / 3600 * 0.525, rel=1e-5)
    assert said["trials"] == {"total": 3, "running": 1, "succeeded": 1, "stoppedEarly": 0, "failed": 1}


def test_no_trial_is_made_while_suspended_and_running_ones_count() -> None:
    found = world((0, RUNNING), suspend=True)
    assert made(found, None) == []
    said = status(found, None)
    assert (said["phase"], said["trials"]["running"]) == ("Suspended", 1)
    assert condition(said, "Ready") == ("False", "Suspended")


def test_what_runs_today_is_measured_first_and_counts() -> None:
    found = world(parallelism=2, **OF_INFERENCE)
    assert made(found, Explore((0,), 0.2)) == [("pe-1", "Baseline", "1"), ("pe-2", "Explore", "500m 256Mi")]
    spec = planning.plan(found, None, NOW).trials[0]["spec"]
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "2Gi"}
    assert spec["costPerHour"] == pytest.approx(1.2)
    assert "stopBelowThroughput" not in spec


def test_what_runs_today_is_a_spec_of_the_space_where_it_has_its_values() -> None:
    inside = {
        **INFERENCE,
        "spec": {
            **INFERENCE["spec"],
            "predictors": [
                {"name": "main", "modelVersion": "v1", "resources": {"cpu": "1000m", "memory": "512Mi"}}
            ],
        },
    }
    found = world(inference=inside, target={"inference": "digits"})
    assert made(found, None) == [("pe-1", "Baseline", "1 512Mi")]


@pytest.mark.parametrize(
    ("limits", "axes", "cost"),
    [
        ({"cpu": "1", "memory": "512Mi"}, ["cpu", "memory"], 1.05),
        ({"cpu": "3", "memory": "512Mi"}, ["cpu", "memory"], 3.05),
        ({"cpu": "1"}, ["cpu"], 1.0),
        ({"memory": "512Mi"}, ["cpu", "memory"], 0.0),
    ],
)
def test_what_runs_today_costs_what_its_own_container_may_take_whatever_runs_beside_it(
    limits: Object, axes: list[str], cost: float
) -> None:
    beside = {"containers": [{"name": "logs", "image": "example.com/logs"}]}
    arm = {"name": "main", "modelVersion": "v1", "resources": limits, "template": beside}
    inference = {**INFERENCE, "spec": {**INFERENCE["spec"], "predictors": [arm]}}
    values = {"cpu": ["500m", "1"], "memory": ["256Mi", "512Mi"]}
    tuned = experiments.parameters(**{name: values[name] for name in axes})
    found = world(inference=inference, target={"inference": "digits"}, tunableParameters=tuned)
    (trial,) = planning.plan(found, None, NOW).trials
    assert trial["spec"]["costPerHour"] == pytest.approx(cost)


def test_a_spec_whose_load_failed_is_tried_again_and_then_the_experiment_has_failed() -> None:
    lost = failed("LoadFailed", "locust died", notes=["LoadRestarted: locust died"])
    assert made(world((2, lost)), None) == [("pe-2", "Explore", "1 256Mi")]
    assert made(world((2, lost), (2, lost)), None) == [("pe-3", "Explore", "1 256Mi")]
    given_up = world((2, lost), (2, lost), (2, lost))
    assert planning.search_budget(given_up, NOW) is None
    assert made(given_up, None) == []
    said = status(given_up, None)
    assert said["phase"] == "Failed"
    assert condition(said, "Ready") == ("False", "LoadFailed")


def test_a_spec_that_was_interrupted_is_tried_again_however_often() -> None:
    found = world(*[(2, failed("Interrupted"))] * 5)
    assert made(found, None) == [("pe-6", "Explore", "1 256Mi")]
    mixed = world(*[(2, LOST)] * 2, *[(2, failed("Interrupted"))] * 2)
    assert made(mixed, None) == [("pe-5", "Explore", "1 256Mi")]


def test_a_load_that_could_not_be_made_of_another_model_ends_nothing() -> None:
    before = world((2, failed("LoadFailed", "the model does not say what it takes")))
    of_before = replace(before, trials=tuple(replace(trial, stale=True) for trial in before.trials))
    assert planning.search_budget(of_before, NOW) == Budget(9, 1)
    assert made(of_before, EXPLORE) == [("pe-2", "Explore", "500m 256Mi")]


def test_an_experiment_whose_load_cannot_be_made_fails_once_what_runs_is_over() -> None:
    lost = failed("LoadFailed", "there is no ConfigMap requests")
    running = world((1, RUNNING), (2, lost), parallelism=2)
    assert made(running, EXPLORE) == []
    said = status(running, None)
    assert (said["phase"], said["trials"]["running"]) == ("Running", 1)
    said = status(world((1, measured()), (2, lost), parallelism=2), None)
    assert (said["phase"], said["trials"]["running"], said["spentSeconds"]) == ("Failed", 0, 41.0)


def test_a_load_that_is_wrong_as_asked_is_not_tried_again() -> None:
    found = world((2, failed("LoadFailed", "there is no ConfigMap requests")))
    assert made(found, EXPLORE) == []
    assert condition(status(found, None), "Ready") == ("False", "LoadFailed")


def test_a_spec_whose_load_worked_the_second_time_is_not_tried_again() -> None:
    found = world((2, failed("LoadFailed", notes=["LoadRestarted: locust died"])), (2, measured()))
    assert made(found, Explore((3,), 0.1)) == [("pe-3", "Explore", "1 512Mi")]


def test_a_new_trial_stops_where_it_cannot_beat_the_best_for_its_price() -> None:
    found = world((0, measured(100.0)), (1, measured(10.0)))
    spec = planning.plan(found, Explore((3,), 0.1, best=0), NOW).trials[0]["spec"]
    assert float(spec["stopBelowThroughput"]) == pytest.approx(98.0 * 1.05 / 0.525)
    nobody = planning.plan(found, Explore((3,), 0.1), NOW).trials[0]["spec"]
    assert "stopBelowThroughput" not in nobody


def test_a_trial_is_measured_to_its_end_where_the_best_may_have_been_lucky() -> None:
    found = world((0, measured(100.0)), (1, measured(10.0)))
    sure, unsure = (
        planning.plan(found, Explore((3,), 0.1, best=0, repeatability=spread), NOW).trials[0]["spec"]
        for spread in (0.0, 0.2)
    )
    assert float(unsure["stopBelowThroughput"]) < 0.75 * float(sure["stopBelowThroughput"])


def test_a_new_trial_stops_where_it_needs_more_replicas_than_the_best_costs() -> None:
    found = world(
        (0, measured(100.0)),
        objective={"type": "minimize", "objectiveMetricName": "costAtRate", "rate": "300"},
    )
    # The best needs four replicas at the lower end of what it does, 2.10 in all: two of the dearer spec, each half of the rate.
    spec = planning.plan(found, Explore((3,), 0.1, best=0), NOW).trials[0]["spec"]
    assert float(spec["stopBelowThroughput"]) == pytest.approx(150.0)


def test_throughput_does_not_stop_a_trial_whose_objective_is_another() -> None:
    found = world((0, measured()), objective={"type": "minimize", "objectiveMetricName": "latency"})
    plan = planning.plan(found, Explore((3,), 0.1, best=0), NOW)
    assert "stopBelowThroughput" not in plan.trials[0]["spec"]


def test_winner_and_runner_up_are_measured_again_to_their_end() -> None:
    found = world((0, measured(100.0)), (1, measured(90.0)))
    plan = planning.plan(found, Confirm((0, 1), 0.05), NOW)
    assert [trial["spec"]["purpose"] for trial in plan.trials] == ["Confirm"]
    assert "stopBelowThroughput" not in plan.trials[0]["spec"]
    assert plan.status is not None
    assert plan.status["phase"] == "Confirming"


def test_each_measurement_of_a_spec_has_a_seed_of_its_own() -> None:
    found = world((0, measured()), parallelism=2)
    seeds = [trial["spec"]["seed"] for trial in planning.plan(found, Confirm((0, 0), 0.05), NOW).trials]
    assert len(set(seeds)) == 2
