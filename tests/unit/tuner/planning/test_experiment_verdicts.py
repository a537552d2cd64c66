"""The status of an experiment: its end, its recommendation, and its progress."""

import datetime as dt
import math
from dataclasses import replace

import pytest

from serving.objects import Object
from tests.objects.tuning import experiments
from tests.objects.tuning.experiments import failed, measured
from tests.objects.tuning.planned_experiments import (
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
from tuner.search.decision_values import Decision, Explore, Impossible, IndexedAlternative, Recommend, Wait
from tuner.search.problem import Budget

RECOMMEND = Recommend(0, 0.03, "regret", best=0)


def test_recommendation_ends_the_experiment_with_its_evidence() -> None:
    trials = [(None, measured(60.0)), (0, measured(100.0)), (1, measured(90.0)), (0, measured(99.0))]
    snapshot = world(*trials, purposes={1: "Baseline", 4: "Confirm"}, **OF_INFERENCE)
    plan = planning.plan(snapshot, RECOMMEND, NOW)
    body = plan.status
    assert body is not None
    assert body["phase"] == "Succeeded"
    assert body["completionTime"] == "2026-01-01T00:10:00Z"
    assert condition(body, "Ready") == ("True", "Recommended")
    assert condition(body, "Recommended") == ("True", "LittleLeftToFind")
    shown = body["recommendation"]
    assert shown["trial"] == "pe-4"
    both = math.sqrt(100.0 * 99.0) * 3600 / 0.525
    assert shown["objective"] == pytest.approx(both)
    assert both * 0.98 < shown["low"] < both < shown["high"] < both * 1.02
    assert (shown["costPerHour"], shown["currentCostPerHour"]) == pytest.approx((0.525, 1.2))
    assert "56% less than today's" in shown["message"]
    assert [(event.reason, event.message) for event in plan.events] == [("Recommended", shown["message"])]


def test_recommendation_after_too_few_trials_begins_with_not_settled() -> None:
    doubtful = Recommend(0, 0.46, "budget", best=0, probability=0.62)
    body = status(world((0, measured()), (1, measured()), maxNumTrials=2), doubtful)
    words = body["recommendation"]["message"].replace("\u00a0", " ")
    assert words.startswith("Not settled after 2 trials: cpu=500m memory=256Mi: ")
    assert words.endswith(
        "; expected regret 46 %; its next measurement breaks a constraint with a probability of 38 %;"
        " run 2 more trials"
    )
    assert message(body) == body["recommendation"]["message"]
    settled = status(world((0, measured()), (1, measured())), replace(doubtful, expected_regret=0.04))
    assert "expected regret" not in settled["recommendation"]["message"]
    sure = replace(doubtful, expected_regret=0.05, probability=0.95)
    assert status(world((0, measured())), sure)["recommendation"]["message"].startswith("cpu=500m")


def test_recommendation_has_the_best_other_spec_of_its_price_and_the_rule() -> None:
    trials = [(0, measured(100.0)), (2, measured(60.0)), (2, measured(66.0))]
    other = IndexedAlternative(2, 0.91, "OnlySafe")
    body = status(world(*trials), replace(RECOMMEND, probability=0.995, alternative=other))
    recommended, best = body["recommendation"], body["best"]
    assert recommended["probability"] == best["probability"] == 0.995
    shown = recommended["alternative"]
    assert shown == best["alternative"]
    assert (shown["trial"], shown["probability"], shown["rule"]) == ("pe-3", 0.91, "OnlySafe")
    assert [setting["value"] for setting in shown["settings"]] == ["1", "256Mi"]
    assert shown["objective"] == pytest.approx(math.sqrt(60.0 * 66.0) * 3600 / 1.025, rel=1e-5)
    assert "alternative" not in status(world(*trials), RECOMMEND)["recommendation"]


def test_nothing_is_recommended_while_a_trial_runs() -> None:
    snapshot = world((0, measured(100.0)), (None, RUNNING), purposes={2: "Baseline"}, **OF_INFERENCE)
    plan = planning.plan(snapshot, RECOMMEND, NOW)
    assert plan.status is not None
    assert (plan.status["phase"], plan.profile) == ("Running", None)


def test_spec_to_repeat_is_pending_to_the_search_while_the_budget_lasts() -> None:
    snapshot = world((0, measured()), (1, RUNNING), (2, LOST), (3, failed("Interrupted")), parallelism=4)
    assert planning.pending(snapshot, NOW) == (1, 2, 3)
    assert planning.search_budget(snapshot, NOW) == Budget(8, 4), "a trial of each was lost"
    used_up = world((0, measured()), (1, RUNNING), (2, LOST), maxNumTrials=3)
    assert planning.pending(used_up, NOW) == (1,)


@pytest.mark.parametrize("decision", [RECOMMEND, Impossible(None, None, (), 0.0)])
def test_search_does_not_end_while_a_spec_is_to_be_repeated(decision: Decision) -> None:
    snapshot = world((0, measured()), (1, LOST), parallelism=2)
    plan = planning.plan(snapshot, decision, NOW)
    assert [trial["metadata"]["name"] for trial in plan.trials] == ["pe-3"]
    assert plan.status is not None
    assert (plan.status["phase"], plan.profile) == ("Running", None)
    used_up = planning.plan(world((0, measured()), (1, LOST), maxNumTrials=2), decision, NOW)
    assert (list(used_up.trials), used_up.status is not None) == ([], True)
    assert (used_up.status or {})["phase"] in {"Succeeded", "Failed"}


def test_capacity_profile_is_that_of_the_winners_last_complete_trial() -> None:
    broken = measured(5.0, reason="BreaksConstraint")
    snapshot = world((0, measured(100.0)), (1, measured(90.0)), (0, broken), purposes={3: "Confirm"})
    plan = planning.plan(snapshot, RECOMMEND, NOW)
    assert plan.profile is not None
    assert (plan.profile["spec"]["trial"], plan.profile["spec"]["capacity"]) == ("pe-1", 100.0)


def test_winner_becomes_a_capacity_profile_without_an_owner() -> None:
    snapshot = world((0, measured(100.0)))
    profile = planning.plan(snapshot, RECOMMEND, NOW).profile
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


def test_points_of_a_capacity_profile_have_the_tokens_of_prompts_and_answers() -> None:
    status = measured(100.0)
    status["result"] |= {"tokensPerSecond": 3000.0, "promptTokensPerSecond": 7000.0}
    profile = planning.plan(world((0, status)), RECOMMEND, NOW).profile
    assert profile is not None
    (point,) = profile["spec"]["points"]
    assert (point["tokensPerSecond"], point["promptTokensPerSecond"]) == (3000.0, 7000.0)


SLO: Object = {"constraints": [{"metric": "latency", "percentile": 99, "atMost": "20ms"}]}


def test_impossible_constraint_is_reported_with_the_nearest_spec() -> None:
    snapshot = world((0, measured()), (1, measured()), **SLO)
    decision = Impossible(0, 1, (math.log(2.5),), 0.03)
    body = status(snapshot, decision)
    assert body["phase"] == "Failed"
    assert condition(body, "Ready") == ("False", "ConstraintNotMet")
    message = next(c["message"] for c in body["conditions"] if c["type"] == "Ready")
    for words in (
        "none of 2 trials met p99 latency <= 20\u00a0ms",
        "cpu=500m memory=512Mi (pe-2)",
        "2.5 times",
        "3%",
    ):
        assert words in message


def test_space_in_which_nothing_runs_is_reported_with_the_causes() -> None:
    snapshot = world((0, failed("OutOfMemory")), (1, failed("NotReady")))
    body = status(snapshot, Impossible(None, None, (), 0.0))
    assert condition(body, "Recommended") == ("False", "NothingRuns")
    assert message(body) == "none of 2 trials ran: NotReady, OutOfMemory"
    once = status(world((0, measured()), (0, failed("Crashed"))), Impossible(None, None, (), 0.0))
    assert message(once) == "of 2 trials no spec ran every time: Crashed"


def test_space_in_which_nothing_is_answered_is_reported_with_the_failed_requests() -> None:
    note = "RequestsFailed: 9 of 9; most often, 9 times: status 400: no input"
    silent = {**measured(0.0), "notes": ["NotSteady", note]}
    body = status(world((0, silent), (1, failed("NotReady"))), Impossible(None, None, (), 0.0))
    assert message(body) == f"none of 2 trials ran: NotReady, nothing was answered ({note})"


def test_best_so_far_is_that_of_the_search_with_all_its_trials() -> None:
    trials = [(0, measured(100.0)), (1, measured(50.0)), (1, measured(40.0)), (2, RUNNING)]
    body = status(world(*trials), Wait(0.1, best=1))["best"]
    assert body["trial"] == "pe-3"
    assert body["objective"] == pytest.approx(math.sqrt(50.0 * 40.0) * 3600 / 0.55, rel=1e-5)
    assert "best" not in status(world(*trials), Wait(0.1))


def test_best_so_far_is_kept_without_a_decision() -> None:
    body = status(world((0, measured()), (1, RUNNING)), Wait(0.1, best=0))
    later = status(world((0, measured()), (1, RUNNING), status=body, suspend=True), None)
    assert later["best"] == body["best"]


def test_best_uses_a_trial_stopped_early_until_a_complete_one_exists() -> None:
    early = measured(100.0, reason="CannotBeatBest")
    stopped = status(world((0, early)), Wait(0.1, best=0))["best"]
    complete = status(world((0, early), (0, measured(80.0))), Wait(0.1, best=0))["best"]
    assert stopped["objective"] / complete["objective"] == pytest.approx(100 / 80)


def test_status_keeps_the_weights_of_earlier_experiments_until_the_next_decision() -> None:
    body = status(world((0, measured())), Explore((1,), 0.1, learned=(("old", 0.75), ("other", 0.0))))
    assert body["learned"] == [{"experiment": "old", "weight": 0.75}, {"experiment": "other", "weight": 0.0}]
    running = world((0, measured()), (1, RUNNING), status=body)
    written = planning.plan(running, None, NOW).status
    assert written is None or written["learned"] == body["learned"]


def test_status_keeps_the_repeatability_until_the_next_decision_and_intervals_include_it() -> None:
    sure = status(world((0, measured())), Explore((1,), 0.1, best=0))
    body = status(world((0, measured())), Explore((1,), 0.1, best=0, repeatability=0.1))
    assert body["repeatability"] == 0.1
    assert body["best"]["objective"] == pytest.approx(sure["best"]["objective"])
    assert body["best"]["low"] < 0.9 * sure["best"]["low"]
    running = world((0, measured()), (1, RUNNING), status=body)
    written = planning.plan(running, None, NOW).status
    assert written is None or written["repeatability"] == 0.1


def test_unchanged_status_is_not_written_again() -> None:
    snapshot = world((0, measured()), (1, RUNNING))
    body = status(snapshot, None)
    again = world((0, measured()), (1, RUNNING), status=body)
    plan = planning.plan(again, None, NOW + dt.timedelta(minutes=1))
    assert plan.status is None
    assert plan.events == ()


def test_missing_target_leaves_the_experiment_pending() -> None:
    missing = planning.Condition(
        planning.TARGET_READY, "False", "TargetNotFound", "there is no Inference digits"
    )
    body = planning.refused(experiments.experiment(), (), missing, "Pending", NOW).status
    assert body is not None
    assert (body["phase"], condition(body, "SpaceValid")) == ("Pending", ("True", "Valid"))
    assert condition(body, "Ready") == ("False", "TargetNotFound")


def test_measurements_in_a_status_have_six_digits() -> None:
    body = status(world((1, measured(50.123456789))), Wait(0.1, best=1))["best"]
    assert body["objective"] == float(f"{50.123456789 * 3600 / 0.55:.6g}")
