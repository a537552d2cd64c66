"""What an experiment does next, by value: from Trials and the search's words to objects and a status."""

import datetime as dt
import math
from dataclasses import replace
from typing import Any

import pytest

from serving.resources.experiment import ProfilingExperimentSpec
from serving.resources.experiment_status import ProfilingExperimentStatus
from serving.resources.trial import TrialSpec, TrialStatus
from tests.fakes import tuning
from tests.fakes.tuning import Object, failed, measured
from tuner import rendering
from tuner.planning import experiment as planning
from tuner.planning import making
from tuner.planning.world import Known, World
from tuner.search.decision import Confirm, Decision, Explore, Impossible, Recommend, Wait
from tuner.search.problem import Budget, Observation
from tuner.space import Space

NOW = dt.datetime(2026, 1, 1, 0, 10, tzinfo=dt.UTC)
RUNNING: Object = {"phase": "Measuring"}
LOST = failed("LoadFailed", "locust died", notes=["LoadRestarted: locust died"])
EXPLORE = Explore((0, 1, 2, 3), 0.2)


def world(*trials: tuple[int | None, Object], purposes: dict[int, str] | None = None, **spec: Any) -> World:
    """Return an experiment with these trials: the row of each (None: beside the space), and its status."""
    inference = spec.pop("inference", None)
    status = spec.pop("status", {})
    found = tuning.experiment(**spec)
    read = ProfilingExperimentSpec.model_validate(found["spec"])
    space = Space.of(read)
    source = rendering.source(read.target, inference)

    def render(settings: Any) -> rendering.Rendering:
        return rendering.pod(source, tuning.model_version(), settings, read.prices)

    known = []
    for number, (index, said) in enumerate(trials, 1):
        settings = () if index is None else space.settings(index)
        shown = render(settings)
        purpose = (purposes or {}).get(number, "Explore")
        body = TrialSpec(
            experiment="pe", number=number, purpose=purpose, settings=list(settings), template=shown.template,  # type: ignore[arg-type]
            model_name="v1", model_digest="sha256:1", cost_per_hour=shown.cost_per_hour,
        )  # fmt: skip
        state = TrialStatus.model_validate(said)
        observation = None
        if index is not None and state.phase == "Succeeded" and state.result is not None:
            done = state.result.throughput.value / shown.cost_per_hour
            observation = Observation(index, log_objective=math.log(done), noise=0.01, margins=(-0.5,))
        elif (
            index is not None
            and state.phase == "Failed"
            and state.reason not in {"LoadFailed", "Interrupted"}
        ):
            observation = Observation(index, cause="boot")
        known.append(Known(f"pe-{number}", body, state, index, observation))
    found["status"] = status
    return World(
        found, read, ProfilingExperimentStatus.model_validate(status), space, tuple(known), render, 3
    )


def made(found: World, decision: Decision | None) -> list[tuple[str, str, str]]:
    """Return name, purpose and settings of the trials that are made."""
    plan = planning.plan(found, decision, NOW)
    return [
        (
            trial["metadata"]["name"],
            trial["spec"]["purpose"],
            " ".join(setting["value"] for setting in trial["spec"]["settings"]),
        )
        for trial in plan.trials
    ]


def status(found: World, decision: Decision | None) -> Object:
    written = planning.plan(found, decision, NOW).status
    assert written is not None
    return dict(written)


def message(said: Object) -> str:
    return str(next(c["message"] for c in said["conditions"] if c["type"] == "Ready"))


def condition(said: Object, type_: str) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in said["conditions"] if c["type"] == type_)


def test_as_many_trials_are_made_as_may_run_at_once() -> None:
    assert made(world(parallelism=2), EXPLORE) == [
        ("pe-1", "Explore", "500m 256Mi"), ("pe-2", "Explore", "500m 512Mi"),
    ]  # fmt: skip
    busy = world((0, RUNNING), (1, measured()), parallelism=2)
    assert made(busy, Explore((2, 3), 0.1)) == [("pe-3", "Explore", "1 256Mi")]


def test_the_same_plan_is_made_again_when_nothing_of_it_was_written() -> None:
    found = world((0, measured()), parallelism=2)
    assert planning.plan(found, EXPLORE, NOW) == planning.plan(found, EXPLORE, NOW)


def test_names_of_trials_fit_however_long_the_experiment_is_named() -> None:
    names = {making.trial_name("x" * 63, 7), making.trial_name("x" * 62, 7), making.trial_name("pe", 7)}
    assert len(names) == 3
    assert all(len(name) <= 63 for name in names)
    assert "pe-7" in names


def test_the_search_is_not_asked_where_no_trial_could_start() -> None:
    assert planning.question(world((0, RUNNING)), NOW) is None
    assert planning.question(world(suspend=True), NOW) is None
    assert planning.question(world(), NOW) == Budget(10, 1)


def test_the_search_counts_only_trials_that_it_is_told_of() -> None:
    lost = failed("LoadFailed", notes=["LoadRestarted: locust died"])
    found = world((None, measured()), (0, lost), (0, measured()), (1, RUNNING), parallelism=2)
    assert planning.question(found, NOW) == Budget(8, 2)


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
    assert planning.question(found, NOW) == Budget(taken, 1)
    assert made(found, EXPLORE) == []


def test_trials_go_on_while_every_budget_has_something_left() -> None:
    found = world(
        (0, measured()), (1, measured()), status={"startTime": "2026-01-01T00:00:01Z"},
        maxNumTrials=3, maxDuration="10m", maxCost="0.0161",
    )  # fmt: skip
    assert planning.question(found, NOW) == Budget(3, 1)
    assert len(made(found, Explore((2,), 0.1))) == 1


def test_spending_is_of_trials_and_of_their_prices() -> None:
    said = status(world((3, measured()), (0, failed("Crashed"))), Explore((1,), 0.1))
    assert said["spentSeconds"] == 41.0
    assert said["spentCost"] == pytest.approx(36 / 3600 * 1.05 + 5 / 3600 * 0.525)
    assert said["trials"] == {"total": 3, "running": 1, "succeeded": 1, "stoppedEarly": 0, "failed": 1}


def test_no_trial_is_made_while_suspended_and_running_ones_count() -> None:
    found = world((0, RUNNING), suspend=True)
    assert made(found, None) == []
    said = status(found, None)
    assert (said["phase"], said["trials"]["running"]) == ("Suspended", 1)
    assert condition(said, "Ready") == ("False", "Suspended")


INFERENCE: Object = {
    "metadata": {"name": "digits", "namespace": "default"},
    "spec": {
        "framework": "sklearn",
        "predictors": [{"name": "main", "modelVersion": "v1", "resources": {"cpu": "1", "memory": "2Gi"}}],
    },
}
OF_INFERENCE: Object = {"inference": INFERENCE, "target": {"inference": "digits"}}


def test_what_runs_today_is_measured_first_and_counts() -> None:
    found = world(parallelism=2, **OF_INFERENCE)
    assert made(found, Explore((0,), 0.2)) == [("pe-1", "Baseline", "1"), ("pe-2", "Explore", "500m 256Mi")]
    spec = planning.plan(found, None, NOW).trials[0]["spec"]
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "2Gi"}
    assert spec["costPerHour"] == pytest.approx(1.2)
    assert "stopBelowThroughput" not in spec


def test_what_runs_today_is_a_spec_of_the_space_where_it_has_its_values() -> None:
    inside = {**INFERENCE, "spec": {**INFERENCE["spec"], "predictors": [
        {"name": "main", "modelVersion": "v1", "resources": {"cpu": "1000m", "memory": "512Mi"}}]}}  # fmt: skip
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
    tuned = tuning.parameters(**{name: values[name] for name in axes})
    found = world(inference=inference, target={"inference": "digits"}, tunableParameters=tuned)
    (trial,) = planning.plan(found, None, NOW).trials
    assert trial["spec"]["costPerHour"] == pytest.approx(cost)


def test_a_spec_whose_load_failed_is_tried_again_and_then_the_experiment_has_failed() -> None:
    lost = failed("LoadFailed", "locust died", notes=["LoadRestarted: locust died"])
    assert made(world((2, lost)), None) == [("pe-2", "Explore", "1 256Mi")]
    assert made(world((2, lost), (2, lost)), None) == [("pe-3", "Explore", "1 256Mi")]
    given_up = world((2, lost), (2, lost), (2, lost))
    assert planning.question(given_up, NOW) is None
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
    assert planning.question(of_before, NOW) == Budget(9, 1)
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


RECOMMEND = Recommend(0, 1, 0.03, "regret", best=0)


def test_a_recommendation_ends_the_experiment_with_its_evidence() -> None:
    trials = [(None, measured(60.0)), (0, measured(100.0)), (1, measured(90.0)), (0, measured(99.0))]
    found = world(*trials, purposes={1: "Baseline", 4: "Confirm"}, **OF_INFERENCE)
    plan = planning.plan(found, RECOMMEND, NOW)
    said = plan.status
    assert said is not None
    assert said["phase"] == "Succeeded"
    assert said["completionTime"] == "2026-01-01T00:10:00Z"
    assert condition(said, "Ready") == ("True", "Recommended")
    assert condition(said, "Recommended") == ("True", "LittleLeftToFind")
    shown = said["recommendation"]
    assert shown["trial"] == "pe-4"
    both = math.sqrt(100.0 * 99.0) * 3600 / 0.525
    assert shown["objective"] == pytest.approx(both)
    assert both * 0.98 < shown["low"] < both < shown["high"] < both * 1.02
    assert (shown["costPerHour"], shown["currentCostPerHour"]) == pytest.approx((0.525, 1.2))
    assert "56% less than today's" in shown["message"]
    assert [(one.reason, one.message) for one in plan.announcements] == [("Recommended", shown["message"])]


def test_nothing_is_recommended_while_a_trial_runs() -> None:
    found = world((0, measured(100.0)), (None, RUNNING), purposes={2: "Baseline"}, **OF_INFERENCE)
    plan = planning.plan(found, RECOMMEND, NOW)
    assert plan.status is not None
    assert (plan.status["phase"], plan.profile) == ("Running", None)


def test_a_spec_that_is_to_be_measured_again_is_pending_to_the_search_while_it_may_begin() -> None:
    found = world((0, measured()), (1, RUNNING), (2, LOST), (3, failed("Interrupted")), parallelism=4)
    assert planning.pending(found, NOW) == (1, 2, 3)
    assert planning.question(found, NOW) == Budget(8, 4), "a trial of each was lost"
    used_up = world((0, measured()), (1, RUNNING), (2, LOST), maxNumTrials=3)
    assert planning.pending(used_up, NOW) == (1,)


@pytest.mark.parametrize("decision", [RECOMMEND, Impossible(None, None, (), 0.0)])
def test_the_search_does_not_end_while_a_spec_is_to_be_measured_again(decision: Decision) -> None:
    found = world((0, measured()), (1, LOST), parallelism=2)
    plan = planning.plan(found, decision, NOW)
    assert [trial["metadata"]["name"] for trial in plan.trials] == ["pe-3"]
    assert plan.status is not None
    assert (plan.status["phase"], plan.profile) == ("Running", None)
    used_up = planning.plan(world((0, measured()), (1, LOST), maxNumTrials=2), decision, NOW)
    assert (list(used_up.trials), used_up.status is not None) == ([], True)
    assert (used_up.status or {})["phase"] in {"Succeeded", "Failed"}


def test_the_winner_becomes_a_capacity_profile_that_nobody_owns() -> None:
    found = world((0, measured(100.0)))
    profile = planning.plan(found, RECOMMEND, NOW).profile
    assert profile is not None
    assert "ownerReferences" not in profile["metadata"]
    spec = profile["spec"]
    assert (spec["capacity"], spec["trial"], spec["machine"]) == (100.0, "pe-1", "a machine")
    assert [point["throughput"] for point in spec["points"]] == [100.0]
    other = world((0, measured(100.0)))
    other.experiment["metadata"]["uid"] = "another experiment of this name"
    second = planning.plan(other, RECOMMEND, NOW).profile
    assert second is not None
    assert second["metadata"]["name"] != profile["metadata"]["name"]


SLO: Object = {"constraints": [{"metric": "latency", "percentile": 99, "atMost": "20ms"}]}


def test_an_impossible_constraint_is_named_with_what_came_nearest() -> None:
    found = world((0, measured()), (1, measured()), **SLO)
    decision = Impossible(0, 1, (math.log(2.5),), 0.03)
    said = status(found, decision)
    assert said["phase"] == "Failed"
    assert condition(said, "Ready") == ("False", "ConstraintNotMet")
    message = next(c["message"] for c in said["conditions"] if c["type"] == "Ready")
    for words in (
        "none of 2 trials met latency p99 <= 20ms",
        "cpu=500m memory=512Mi (pe-2)",
        "2.5 times",
        "3%",
    ):
        assert words in message


def test_a_space_in_which_nothing_runs_says_why() -> None:
    found = world((0, failed("OutOfMemory")), (1, failed("NotReady")))
    said = status(found, Impossible(None, None, (), 0.0))
    assert condition(said, "Recommended") == ("False", "NothingRuns")
    assert message(said) == "none of 2 trials ran: NotReady, OutOfMemory"
    once = status(world((0, measured()), (0, failed("Crashed"))), Impossible(None, None, (), 0.0))
    assert message(once) == "of 2 trials no spec ran every time: Crashed"


def test_the_best_so_far_is_the_searchs_with_all_its_measurements() -> None:
    trials = [(0, measured(100.0)), (1, measured(50.0)), (1, measured(40.0)), (2, RUNNING)]
    said = status(world(*trials), Wait(0.1, best=1))["best"]
    assert said["trial"] == "pe-3"
    assert said["objective"] == pytest.approx(math.sqrt(50.0 * 40.0) * 3600 / 0.55)
    assert "best" not in status(world(*trials), Wait(0.1))


def test_the_best_so_far_stays_while_the_search_is_not_asked() -> None:
    said = status(world((0, measured()), (1, RUNNING)), Wait(0.1, best=0))
    later = status(world((0, measured()), (1, RUNNING), status=said, suspend=True), None)
    assert later["best"] == said["best"]


def test_a_spec_that_was_stopped_early_is_shown_by_that_until_it_is_measured_to_its_end() -> None:
    early = measured(100.0, reason="CannotBeatBest")
    stopped = status(world((0, early)), Wait(0.1, best=0))["best"]
    whole = status(world((0, early), (0, measured(80.0))), Wait(0.1, best=0))["best"]
    assert stopped["objective"] / whole["objective"] == pytest.approx(100 / 80)


def test_the_status_says_what_a_warm_start_came_to_until_the_search_says_otherwise() -> None:
    said = status(world((0, measured())), Explore((1,), 0.1, learned=(("old", 0.75), ("other", 0.0))))
    assert said["learned"] == [{"experiment": "old", "weight": 0.75}, {"experiment": "other", "weight": 0.0}]
    running = world((0, measured()), (1, RUNNING), status=said)
    written = planning.plan(running, None, NOW).status
    assert written is None or written["learned"] == said["learned"]


def test_what_trials_differ_by_is_said_until_the_search_says_otherwise_and_is_in_every_interval() -> None:
    sure = status(world((0, measured())), Explore((1,), 0.1, best=0))
    said = status(world((0, measured())), Explore((1,), 0.1, best=0, repeatability=0.1))
    assert said["repeatability"] == 0.1
    assert said["best"]["objective"] == pytest.approx(sure["best"]["objective"])
    assert said["best"]["low"] < 0.9 * sure["best"]["low"]
    running = world((0, measured()), (1, RUNNING), status=said)
    written = planning.plan(running, None, NOW).status
    assert written is None or written["repeatability"] == 0.1


def test_a_trial_is_measured_to_its_end_where_the_best_may_have_been_lucky() -> None:
    found = world((0, measured(100.0)), (1, measured(10.0)))
    sure, unsure = (
        planning.plan(found, Explore((3,), 0.1, best=0, repeatability=spread), NOW).trials[0]["spec"]
        for spread in (0.0, 0.2)
    )
    assert float(unsure["stopBelowThroughput"]) < 0.75 * float(sure["stopBelowThroughput"])


def test_a_status_that_says_the_same_is_not_written_again() -> None:
    found = world((0, measured()), (1, RUNNING))
    said = status(found, None)
    again = world((0, measured()), (1, RUNNING), status=said)
    plan = planning.plan(again, None, NOW + dt.timedelta(minutes=1))
    assert plan.status is None
    assert plan.announcements == ()


def test_a_target_that_may_still_come_is_waited_for() -> None:
    missing = planning.Condition(
        planning.TARGET_READY, "False", "TargetNotFound", "there is no Inference digits"
    )
    said = planning.refused(tuning.experiment(), (), missing, "Pending", NOW).status
    assert said is not None
    assert (said["phase"], condition(said, "SpaceValid")) == ("Pending", ("True", "Valid"))
    assert condition(said, "Ready") == ("False", "TargetNotFound")
