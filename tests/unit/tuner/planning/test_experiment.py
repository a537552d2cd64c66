"""The next trials of an experiment, from its trials, its budget and the decision of the search."""

import datetime as dt
from dataclasses import replace

import pytest

from serving.objects import Object
from tests.objects.tuning import experiments
from tests.objects.tuning.experiments import failed, measured
from tests.objects.tuning.planned_experiments import (
    INFERENCE,
    LOST,
    NOW,
    OF_INFERENCE,
    RUNNING,
    condition,
    planned_trials,
    status,
    world,
)
from tuner.planning import experiment as planning
from tuner.planning import trial_objects
from tuner.search.decision_values import Confirm, Explore, Recommend
from tuner.search.problem import Budget

EXPLORE = Explore((0, 1, 2, 3), 0.2)


def test_plan_creates_as_many_trials_as_may_run_in_parallel() -> None:
    assert planned_trials(world(parallelism=2), EXPLORE) == [
        ("pe-1", "Explore", "500m 256Mi"),
        ("pe-2", "Explore", "500m 512Mi"),
    ]
    busy = world((0, RUNNING), (1, measured()), parallelism=2)
    assert planned_trials(busy, Explore((2, 3), 0.1)) == [("pe-3", "Explore", "1 256Mi")]


def test_plan_is_the_same_when_nothing_of_it_was_written() -> None:
    snapshot = world((0, measured()), parallelism=2)
    assert planning.plan(snapshot, EXPLORE, NOW) == planning.plan(snapshot, EXPLORE, NOW)


def test_names_of_trials_are_short_enough_for_any_name_of_the_experiment() -> None:
    names = {
        trial_objects.trial_name("x" * 63, 7),
        trial_objects.trial_name("x" * 62, 7),
        trial_objects.trial_name("pe", 7),
    }
    assert len(names) == 3
    assert all(len(name) <= 63 for name in names)
    assert "pe-7" in names


def test_plan_needs_no_search_when_no_trial_could_start() -> None:
    assert planning.search_budget(world((0, RUNNING)), NOW) is None
    assert planning.search_budget(world(suspend=True), NOW) is None
    assert planning.search_budget(world(), NOW) == Budget(10, 1)


def test_budget_of_the_search_counts_only_trials_that_it_knows() -> None:
    lost = failed("LoadFailed", notes=["LoadRestarted: locust died"])
    snapshot = world((None, measured()), (0, lost), (0, measured()), (1, RUNNING), parallelism=2)
    assert planning.search_budget(snapshot, NOW) == Budget(8, 2)


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"maxNumTrials": 2}, 2),
        ({"maxDuration": "10m"}, 2),
        ({"maxCost": "0.01"}, 2),
    ],
)
def test_plan_creates_no_trial_when_a_budget_is_used_up(spec: Object, taken: int) -> None:
    snapshot = world((0, measured()), (1, measured()), status={"startTime": "2026-01-01T00:00:00Z"}, **spec)
    assert planning.search_budget(snapshot, NOW) == Budget(taken, 1)
    assert planned_trials(snapshot, EXPLORE) == []


def test_plan_creates_trials_while_no_budget_is_used_up() -> None:
    snapshot = world(
        (0, measured()),
        (1, measured()),
        status={"startTime": "2026-01-01T00:00:01Z"},
        maxNumTrials=3,
        maxDuration="10m",
        maxCost="0.0161",
    )
    assert planning.search_budget(snapshot, NOW) == Budget(3, 1)
    assert len(planned_trials(snapshot, Explore((2,), 0.1))) == 1


def test_time_while_suspended_does_not_count_in_max_duration() -> None:
    began: Object = {"startTime": "2025-12-31T18:00:00Z"}
    stopped = world((0, measured()), status=began, suspend=True, maxDuration="10m")
    evening = NOW - dt.timedelta(hours=6, minutes=5)
    held = dict(planning.plan(stopped, None, evening).status or {})
    assert (held["phase"], held["suspendTime"]) == ("Suspended", "2025-12-31T18:05:00Z")
    again = world((0, measured()), status=held, suspend=True, maxDuration="10m")
    assert planning.plan(again, None, NOW).status is None, "nothing changes while it is suspended"
    resumed = world((0, measured()), status=held, maxDuration="10m")
    assert planned_trials(resumed, EXPLORE) == [("pe-2", "Explore", "500m 256Mi")]
    body = status(resumed, EXPLORE)
    assert body["suspendedSeconds"] == 6 * 3600 + 5 * 60
    assert "suspendTime" not in body
    later = world((0, measured()), status=body, maxDuration="10m")
    used_up = NOW + dt.timedelta(minutes=5)
    assert planning.search_budget(later, used_up - dt.timedelta(seconds=1)) == Budget(10, 1)
    assert planning.search_budget(later, used_up) == Budget(1, 1)


def test_time_after_the_end_does_not_count_in_max_duration_when_the_experiment_continues() -> None:
    began: Object = {"startTime": "2026-01-01T00:05:00Z"}
    limits: Object = {"maxDuration": "10m", "maxNumTrials": 1}
    over = status(world((0, measured()), status=began, **limits), Recommend(0, 0.5, "budget", best=0))
    assert over["completionTime"] == "2026-01-01T00:10:00Z"
    tomorrow = NOW + dt.timedelta(days=1)
    more = world((0, measured()), status=over, maxDuration="10m", maxNumTrials=9)
    assert planning.search_budget(more, tomorrow) == Budget(9, 1)
    plan = planning.plan(more, EXPLORE, tomorrow)
    assert [trial["metadata"]["name"] for trial in plan.trials] == ["pe-2"]
    continued = dict(plan.status or {})
    assert (continued["suspendedSeconds"], "completionTime" in continued) == (86_400, False)
    later = world((0, measured()), status=continued, maxDuration="10m")
    used_up = tomorrow + dt.timedelta(minutes=5)
    assert planning.search_budget(later, used_up - dt.timedelta(seconds=1)) == Budget(10, 1)
    assert planning.search_budget(later, used_up) == Budget(1, 1)


def test_time_after_the_end_counts_once_when_the_experiment_is_suspended_then() -> None:
    over: Object = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:02:00Z"}
    held = status(world((0, measured()), status=over, suspend=True), None)
    assert (held["suspendTime"], held["suspendedSeconds"]) == ("2026-01-01T00:10:00Z", 480)
    resumed = world((0, measured()), status=held)
    continued = planning.plan(resumed, EXPLORE, NOW + dt.timedelta(minutes=1)).status or {}
    assert continued["suspendedSeconds"] == 540


def test_time_after_an_end_before_the_first_trial_does_not_extend_max_duration() -> None:
    over: Object = {"completionTime": "2026-01-01T00:00:00Z"}
    body = status(world(status=over), EXPLORE)
    assert (body["startTime"], body["suspendedSeconds"]) == ("2026-01-01T00:10:00Z", 0)


def test_suspension_ends_when_the_experiment_fails() -> None:
    held: Object = {"startTime": "2026-01-01T00:00:00Z", "suspendTime": "2026-01-01T00:02:00Z"}
    failing = world((2, failed("LoadFailed", "there is no ConfigMap requests")), status=held, suspend=True)
    body = status(failing, None)
    assert (body["phase"], body["completionTime"]) == ("Failed", "2026-01-01T00:10:00Z")
    assert (body["suspendedSeconds"], "suspendTime" in body) == (480, False)


def test_spending_is_the_sum_over_trials_of_seconds_and_cost() -> None:
    body = status(world((3, measured()), (0, failed("Crashed"))), Explore((1,), 0.1))
    assert body["spentSeconds"] == 41.0
    assert body["spentCost"] == pytest.approx(36 / 3600 * 1.05 + 5 / 3600 * 0.525, rel=1e-5)
    assert body["trials"] == {"total": 3, "running": 1, "succeeded": 1, "stoppedEarly": 0, "failed": 1}


def test_expected_regret_is_unknown_when_an_experiment_is_suspended_after_its_baseline() -> None:
    begun = planning.plan(world((None, RUNNING)), None, NOW).status or {}
    assert begun["expectedRegret"] == 1
    stopped = world((None, measured()), status=begun, suspend=True)
    assert (planning.plan(stopped, None, NOW).status or {})["expectedRegret"] == 1


def test_suspended_experiment_creates_no_trial_and_counts_running_ones() -> None:
    snapshot = world((0, RUNNING), suspend=True)
    assert planned_trials(snapshot, None) == []
    body = status(snapshot, None)
    assert (body["phase"], body["trials"]["running"]) == ("Suspended", 1)
    assert condition(body, "Ready") == ("False", "Suspended")


def test_current_spec_is_measured_first_and_counts() -> None:
    snapshot = world(parallelism=2, **OF_INFERENCE)
    assert planned_trials(snapshot, Explore((0,), 0.2)) == [
        ("pe-1", "Baseline", "1"),
        ("pe-2", "Explore", "500m 256Mi"),
    ]
    spec = planning.plan(snapshot, None, NOW).trials[0]["spec"]
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "2Gi"}
    assert spec["costPerHour"] == pytest.approx(1.2)
    assert "stopBelowThroughput" not in spec


def test_baseline_has_settings_of_the_space_that_equal_the_current_spec() -> None:
    inside = {
        **INFERENCE,
        "spec": {
            **INFERENCE["spec"],
            "predictors": [
                {"name": "main", "modelVersion": "v1", "resources": {"cpu": "1000m", "memory": "512Mi"}}
            ],
        },
    }
    snapshot = world(inference=inside, target={"inference": "digits"})
    assert planned_trials(snapshot, None) == [("pe-1", "Baseline", "1 512Mi")]


@pytest.mark.parametrize(
    ("limits", "axes", "cost"),
    [
        ({"cpu": "1", "memory": "512Mi"}, ["cpu", "memory"], 1.05),
        ({"cpu": "3", "memory": "512Mi"}, ["cpu", "memory"], 3.05),
        ({"cpu": "1"}, ["cpu"], 1.0),
        ({"memory": "512Mi"}, ["cpu", "memory"], 0.0),
    ],
)
def test_baseline_costs_the_limits_of_its_own_container_beside_unlimited_sidecars(
    limits: Object, axes: list[str], cost: float
) -> None:
    beside = {"containers": [{"name": "logs", "image": "example.com/logs"}]}
    arm = {"name": "main", "modelVersion": "v1", "resources": limits, "template": beside}
    inference = {**INFERENCE, "spec": {**INFERENCE["spec"], "predictors": [arm]}}
    values = {"cpu": ["500m", "1"], "memory": ["256Mi", "512Mi"]}
    tuned = experiments.parameters(**{name: values[name] for name in axes})
    snapshot = world(inference=inference, target={"inference": "digits"}, tunableParameters=tuned)
    (trial,) = planning.plan(snapshot, None, NOW).trials
    assert trial["spec"]["costPerHour"] == pytest.approx(cost)


def test_spec_whose_load_failed_is_repeated_and_then_the_experiment_fails() -> None:
    lost = failed("LoadFailed", "locust died", notes=["LoadRestarted: locust died"])
    assert planned_trials(world((2, lost)), None) == [("pe-2", "Explore", "1 256Mi")]
    assert planned_trials(world((2, lost), (2, lost)), None) == [("pe-3", "Explore", "1 256Mi")]
    given_up = world((2, lost), (2, lost), (2, lost))
    assert planning.search_budget(given_up, NOW) is None
    assert planned_trials(given_up, None) == []
    body = status(given_up, None)
    assert body["phase"] == "Failed"
    assert condition(body, "Ready") == ("False", "LoadFailed")


def test_interrupted_spec_is_repeated_any_number_of_times() -> None:
    snapshot = world(*[(2, failed("Interrupted"))] * 5)
    assert planned_trials(snapshot, None) == [("pe-6", "Explore", "1 256Mi")]
    mixed = world(*[(2, LOST)] * 2, *[(2, failed("Interrupted"))] * 2)
    assert planned_trials(mixed, None) == [("pe-5", "Explore", "1 256Mi")]


def test_failed_load_of_another_model_does_not_end_the_experiment() -> None:
    before = world((2, failed("LoadFailed", "the model does not say what it takes")))
    of_before = replace(before, trials=tuple(replace(trial, stale=True) for trial in before.trials))
    assert planning.search_budget(of_before, NOW) == Budget(9, 1)
    assert planned_trials(of_before, EXPLORE) == [("pe-2", "Explore", "500m 256Mi")]


def test_experiment_whose_load_failed_fails_once_running_trials_have_ended() -> None:
    lost = failed("LoadFailed", "there is no ConfigMap requests")
    running = world((1, RUNNING), (2, lost), parallelism=2)
    assert planned_trials(running, EXPLORE) == []
    body = status(running, None)
    assert (body["phase"], body["trials"]["running"]) == ("Running", 1)
    body = status(world((1, measured()), (2, lost), parallelism=2), None)
    assert (body["phase"], body["trials"]["running"], body["spentSeconds"]) == ("Failed", 0, 41.0)


def test_invalid_load_is_not_repeated() -> None:
    snapshot = world((2, failed("LoadFailed", "there is no ConfigMap requests")))
    assert planned_trials(snapshot, EXPLORE) == []
    assert condition(status(snapshot, None), "Ready") == ("False", "LoadFailed")


def test_search_goes_on_when_the_load_lacks_a_setting_of_todays_spec() -> None:
    lost = failed("LoadFailed", "load.requestTemplate.body: ${...} must name one of batch, not ${memory}")
    snapshot = world((None, lost), purposes={1: "Baseline"}, **OF_INFERENCE)
    assert planning.search_budget(snapshot, NOW) == Budget(9, 1)
    assert planned_trials(snapshot, EXPLORE) == [("pe-2", "Explore", "500m 256Mi")]
    assert condition(status(snapshot, EXPLORE), "Ready") == ("False", "Searching")
    within_space = world((0, lost), purposes={1: "Baseline"}, **OF_INFERENCE)
    assert condition(status(within_space, None), "Ready") == ("False", "LoadFailed")


@pytest.mark.parametrize("note", ["LoadRetried: status 503", "UnexpectedError: ZeroDivisionError: x"])
def test_spec_is_repeated_when_its_load_failed_by_what_may_pass(note: str) -> None:
    lost = failed("LoadFailed", "x", notes=[note])
    assert planned_trials(world((2, lost)), None) == [("pe-2", "Explore", "1 256Mi")]
    assert condition(status(world(*[(2, lost)] * 3), None), "Ready") == ("False", "LoadFailed")


def test_spec_whose_load_succeeded_the_second_time_is_not_repeated() -> None:
    snapshot = world((2, failed("LoadFailed", notes=["LoadRestarted: locust died"])), (2, measured()))
    assert planned_trials(snapshot, Explore((3,), 0.1)) == [("pe-3", "Explore", "1 512Mi")]


def test_trial_stops_below_the_throughput_that_beats_the_best_at_its_price() -> None:
    snapshot = world((0, measured(100.0)), (1, measured(10.0)))
    spec = planning.plan(snapshot, Explore((3,), 0.1, best=0, is_safe=True), NOW).trials[0]["spec"]
    assert float(spec["stopBelowThroughput"]) == pytest.approx(98.0 * 1.05 / 0.525)
    without_best = planning.plan(snapshot, Explore((3,), 0.1), NOW).trials[0]["spec"]
    assert "stopBelowThroughput" not in without_best


def test_trial_is_measured_completely_while_the_best_may_break_a_constraint() -> None:
    snapshot = world((0, measured(100.0)), (1, measured(10.0)))
    spec = planning.plan(snapshot, Explore((3,), 0.1, best=0, is_safe=False), NOW).trials[0]["spec"]
    assert "stopBelowThroughput" not in spec


def test_trial_stops_earlier_only_for_a_best_beyond_the_repeatability() -> None:
    snapshot = world((0, measured(100.0)), (1, measured(10.0)))
    sure, unsure = (
        planning.plan(snapshot, Explore((3,), 0.1, best=0, is_safe=True, repeatability=spread), NOW).trials[
            0
        ]["spec"]
        for spread in (0.0, 0.2)
    )
    assert float(unsure["stopBelowThroughput"]) < 0.75 * float(sure["stopBelowThroughput"])


def test_trial_stops_below_the_throughput_that_needs_too_many_replicas() -> None:
    snapshot = world(
        (0, measured(100.0)),
        objective={"type": "minimize", "objectiveMetricName": "costAtRate", "rate": "300"},
    )
    # The best needs four replicas at the lower end of its throughput, 2.10 an hour in all: the price of two
    # replicas of the dearer spec, each with half of the rate.
    spec = planning.plan(snapshot, Explore((3,), 0.1, best=0, is_safe=True), NOW).trials[0]["spec"]
    assert float(spec["stopBelowThroughput"]) == pytest.approx(150.0)


def test_trial_of_an_equal_spec_is_measured_completely_at_a_price_that_rounds() -> None:
    snapshot = world(
        (0, measured(100.0)),
        objective={"type": "minimize", "objectiveMetricName": "costAtRate", "rate": "290"},
        prices={"cpu": "0.346", "memory": "0"},
    )
    # Three replicas at 0.173 an hour; 3 * 0.173 / 0.173 is less than 3 in binary floating point.
    spec = planning.plan(snapshot, Explore((1,), 0.1, best=0, is_safe=True), NOW).trials[0]["spec"]
    assert spec["costPerHour"] == 0.173
    assert float(spec["stopBelowThroughput"]) == pytest.approx(290 / 3)


def test_trial_of_a_latency_objective_does_not_stop_by_throughput() -> None:
    snapshot = world((0, measured()), objective={"type": "minimize", "objectiveMetricName": "latency"})
    plan = planning.plan(snapshot, Explore((3,), 0.1, best=0, is_safe=True), NOW)
    assert "stopBelowThroughput" not in plan.trials[0]["spec"]


def test_trial_has_the_percentile_of_a_latency_objective() -> None:
    latency = {"type": "minimize", "objectiveMetricName": "latency", "percentile": 75}
    for objective, percentile in ((latency, 75), ({"objectiveMetricName": "throughput"}, None)):
        snapshot = world((0, measured()), objective=objective)
        spec = planning.plan(snapshot, Explore((3,), 0.1), NOW).trials[0]["spec"]
        assert spec.get("objectivePercentile") == percentile


def test_confirmations_are_measured_to_their_end() -> None:
    snapshot = world((0, measured(100.0)), (1, measured(90.0)))
    plan = planning.plan(snapshot, Confirm((0, 1), 0.05), NOW)
    assert [trial["spec"]["purpose"] for trial in plan.trials] == ["Confirm"]
    assert "stopBelowThroughput" not in plan.trials[0]["spec"]
    assert plan.status is not None
    assert plan.status["phase"] == "Confirming"


def test_each_trial_of_a_spec_has_another_seed() -> None:
    snapshot = world((0, measured()), parallelism=2)
    seeds = [trial["spec"]["seed"] for trial in planning.plan(snapshot, Confirm((0, 0), 0.05), NOW).trials]
    assert len(set(seeds)) == 2
