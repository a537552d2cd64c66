"""What an experiment says of itself, by value: how it ends, what it recommends, and its status meanwhile."""

import datetime as dt
import math

import pytest

from serving.objects import Object
from tests.objects import experiments
from tests.objects.experiments import failed, measured
from tests.objects.planned_experiments import (
    LOST,
    NOW,
    OF_INFERENCE,
    RUNNING,
    condition,
    message,
    status,
    world,
)
from tuner.planning import experiment as planning
from tuner.search.decision import Decision, Explore, Impossible, Recommend, Wait
from tuner.search.problem import Budget

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
    assert [(one.reason, one.message) for one in plan.events] == [("Recommended", shown["message"])]


def test_nothing_is_recommended_while_a_trial_runs() -> None:
    found = world((0, measured(100.0)), (None, RUNNING), purposes={2: "Baseline"}, **OF_INFERENCE)
    plan = planning.plan(found, RECOMMEND, NOW)
    assert plan.status is not None
    assert (plan.status["phase"], plan.profile) == ("Running", None)


def test_a_spec_that_is_to_be_measured_again_is_pending_to_the_search_while_it_may_begin() -> None:
    found = world((0, measured()), (1, RUNNING), (2, LOST), (3, failed("Interrupted")), parallelism=4)
    assert planning.pending(found, NOW) == (1, 2, 3)
    assert planning.search_budget(found, NOW) == Budget(8, 4), "a trial of each was lost"
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
        "none of 2 trials met p99 latency <= 20\u00a0ms",
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


def test_a_space_in_which_nothing_is_answered_says_what_failed_requests_said() -> None:
    note = "RequestsFailed: 9 of 9; most often, 9 times: status 400: no input"
    silent = {**measured(0.0), "notes": ["NotSteady", note]}
    said = status(world((0, silent), (1, failed("NotReady"))), Impossible(None, None, (), 0.0))
    assert message(said) == f"none of 2 trials ran: NotReady, nothing was answered ({note})"


def test_the_best_so_far_is_the_searchs_with_all_its_measurements() -> None:
    trials = [(0, measured(100.0)), (1, measured(50.0)), (1, measured(40.0)), (2, RUNNING)]
    said = status(world(*trials), Wait(0.1, best=1))["best"]
    assert said["trial"] == "pe-3"
    assert said["objective"] == pytest.approx(math.sqrt(50.0 * 40.0) * 3600 / 0.55, rel=1e-5)
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


def test_a_status_that_says_the_same_is_not_written_again() -> None:
    found = world((0, measured()), (1, RUNNING))
    said = status(found, None)
    again = world((0, measured()), (1, RUNNING), status=said)
    plan = planning.plan(again, None, NOW + dt.timedelta(minutes=1))
    assert plan.status is None
    assert plan.events == ()


def test_a_target_that_may_still_come_is_waited_for() -> None:
    missing = planning.Condition(
        planning.TARGET_READY, "False", "TargetNotFound", "there is no Inference digits"
    )
    said = planning.refused(experiments.experiment(), (), missing, "Pending", NOW).status
    assert said is not None
    assert (said["phase"], condition(said, "SpaceValid")) == ("Pending", ("True", "Valid"))
    assert condition(said, "Ready") == ("False", "TargetNotFound")


def test_a_status_has_six_digits_of_what_was_measured() -> None:
    said = status(world((1, measured(50.123456789))), Wait(0.1, best=1))["best"]
    assert said["objective"] == float(f"{50.123456789 * 3600 / 0.55:.6g}")
