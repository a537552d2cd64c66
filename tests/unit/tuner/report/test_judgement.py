"""What the answer rests on: which trials speak for a spec, and which specs may be named at all."""

from typing import Any

import pytest

from serving.objects import Object
from tests.objects import measured_experiments as made
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.settings import DEFAULTS

GOOD = {"cpu": "1", "memory": "512Mi", "batchSize": "4", "OMP_NUM_THREADS": "1"}
OTHER = {"cpu": "2", "memory": "1Gi", "batchSize": "4", "OMP_NUM_THREADS": "2"}


def at(done: float, latency: float) -> made.Service:
    """Return a service that does this whatever is asked of it."""
    return lambda settings, users: (done, latency)


def report(trials: list[Object], winner: int = 0, **changed: Any) -> Object:
    return content.of(made.finished(trials, trials[winner], **changed), trials, NOW, DEFAULTS)


def codes(found: Object) -> list[str]:
    return [caution["code"] for caution in found["cautions"]]


def told(found: Object) -> dict[str, list[str]]:
    """Return the sentences with ordinary spaces."""
    return {k: [words.replace("\u00a0", " ") for words in said] for k, said in sentences.of(found).items()}


def test_what_trials_of_one_spec_differ_by_may_be_more_than_a_lead():
    ahead = made.trial(1, GOOD, run=at(110, 0.05))
    behind = made.trial(2, {**GOOD, "OMP_NUM_THREADS": "2"}, run=at(100, 0.05))
    experiment = made.finished([ahead, behind], ahead)
    assert (
        content.of(experiment, [ahead, behind], NOW, DEFAULTS)["answer"]["againstRunnerUp"]["verdict"]
        == "Better"
    )
    experiment["status"]["repeatability"] = 0.15
    found = content.of(experiment, [ahead, behind], NOW, DEFAULTS)
    assert found["answer"]["againstRunnerUp"]["verdict"] == "Unclear"
    assert any(
        words.startswith("Measured again, a spec typically gives 16") for words in told(found)["details"]
    )


def test_a_confirmation_that_broke_a_limit_counts_among_what_was_seen_of_it_and_is_named():
    once = made.trial(1, GOOD, run=at(100, 0.080))
    again = made.trial(2, GOOD, run=at(100, 0.110), purpose="Confirm")
    assert again["status"]["reason"] == "BreaksConstraint"
    found = report([once, again])
    choice = found["answer"]["choice"]
    assert choice["trials"] == ["digits-cost-1"]
    assert choice["broken"] == ["digits-cost-2"]
    assert choice["checks"][0]["measured"]["value"] == pytest.approx((0.080 * 0.110) ** 0.5)
    assert "BrokeConstraint" in codes(found)
    assert "NotConfirmed" not in codes(found)
    assert any(
        words.startswith("Trial 2 (one of the recommended spec's) measured the same spec, and no load")
        for words in told(found)["cautions"]
    )


def test_a_spec_whose_confirmation_broke_a_limit_by_more_than_it_kept_it_is_no_runner_up():
    trials = [
        made.trial(1, GOOD, run=at(100, 0.050)),
        made.trial(2, OTHER, run=at(150, 0.080)),
        made.trial(3, OTHER, run=at(150, 0.200), purpose="Confirm"),
    ]
    assert report(trials)["answer"]["runnerUp"] is None


def test_a_lead_over_what_has_no_lower_end_is_not_proven():
    trials = [made.trial(1, GOOD, run=at(120, 0.05)), made.trial(2, OTHER, run=at(100, 0.05))]
    for trial in trials:
        trial["spec"]["costPerHour"] = 0.05
        trial["status"]["result"]["throughput"] |= {"low": 0.0, "high": 200.0}
    found = report(trials)
    assert found["answer"]["againstRunnerUp"]["verdict"] == "Unclear"
    assert any("or more" in words for words in told(found)["details"])
    assert "or more" in page.render(found)


@pytest.mark.parametrize("reason", ["LoadFailed", "Interrupted"])
def test_a_trial_that_says_nothing_of_its_spec_takes_nothing_from_it(reason: str):
    trials = [made.trial(n, spec, run=at(100, 0.05)) for n, spec in enumerate((GOOD, OTHER, OTHER), 1)]
    trials[1]["status"] = {"phase": "Failed", "reason": reason, "seconds": 3.0}
    assert report(trials)["answer"]["runnerUp"]["trials"] == ["digits-cost-3"]


@pytest.mark.parametrize("reason", ["OutOfMemory", "Crashed", "TimedOut"])
def test_a_spec_that_failed_under_load_is_no_runner_up_and_wins_at_no_price(reason: str):
    trials = [made.trial(n, spec, run=at(100, 0.05)) for n, spec in enumerate((GOOD, OTHER, OTHER), 1)]
    trials[2]["status"] |= {"phase": "Failed", "reason": reason, "result": None}
    assert trials[2]["status"]["windows"]
    found = report(trials)
    assert found["answer"]["runnerUp"] is None
    winners = {s["trial"] for change in (*found["prices"], *found["bounds"]) for s in change["segments"]}
    assert winners <= {"", "digits-cost-1"}


def beside(number: int, done: float, latency: float, cost: float) -> Object:
    """Return a trial of what runs today, whose cores are no value of the space."""
    found = made.trial(number, GOOD, run=at(done, latency), purpose="Baseline")
    for setting in found["spec"]["settings"]:
        if setting["name"] == "cpu":
            setting["value"] = "300m"
    found["spec"]["costPerHour"] = cost
    return found


def test_what_runs_today_beside_the_space_is_kept_where_it_is_better_for_sure():
    found = report([beside(1, 100, 0.05, cost=0.02), made.trial(2, GOOD, run=at(100, 0.05))], winner=1)
    assert found["answer"]["againstCurrent"]["verdict"] == "Worse"
    assert "CurrentBetter" in codes(found)
    (headline,) = told(found)["headline"]
    assert headline.startswith("Keep cpu=300m memory=512Mi ")
    assert "with the best spec of the space, cpu=1 " in headline
    assert " more (" in headline
    assert "slipway tune apply" not in page.render(found)


def test_what_runs_today_beside_the_space_is_not_kept_where_it_breaks_a_limit():
    found = report([beside(1, 100, 0.2, cost=0.02), made.trial(2, GOOD, run=at(100, 0.05))], winner=1)
    assert "CurrentBetter" not in codes(found)
    assert told(found)["headline"][0].startswith("Run cpu=1 ")


def test_a_spec_beside_the_space_is_neither_runner_up_nor_called_better_than_the_recommendation():
    found = report([beside(1, 100, 0.05, cost=0.02), made.trial(2, GOOD, run=at(100, 0.05))], winner=1)
    assert found["answer"]["runnerUp"] is None
    assert "MeasuredBetter" not in codes(found)


STREAMED = {"metric": "ttft", "percentile": 99, "atMost": "50ms"}


def test_a_constraint_that_was_never_seen_is_not_met():
    trials = [made.trial(1, GOOD, run=at(100, 0.05)), made.trial(2, OTHER, run=at(100, 0.05))]
    found = report(trials, constraints=[STREAMED])
    assert found["answer"]["runnerUp"] is None
    assert any(
        words.startswith("The p99 time to first token is not a number") for words in told(found)["details"]
    )


def test_a_constraint_that_no_trial_saw_is_the_obstacle():
    trials = [made.trial(1, GOOD, run=at(100, 0.05))]
    found = content.of(made.finished(trials, None, constraints=[STREAMED]), trials, NOW, DEFAULTS)
    assert found["answer"]["kind"] == "Impossible"
    assert found["answer"]["obstacle"]["constraint"] == 0
    assert "of which there is no p99 time to first token" in told(found)["impossible"][0]


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ({"objectiveMetricName": "throughput"}, "With the recommended spec a replica answers "),
        ({"objectiveMetricName": "throughputPerCost"}, "It was measured, and its objective cannot be computed"),
        ({"objectiveMetricName": "cost", "type": "minimize"}, "It was measured, and its objective cannot be computed"),
    ],
)  # fmt: skip
def test_what_runs_today_without_limits_is_measured_and_what_it_costs_is_not_known(
    objective: Object, words: str
):
    found = report(
        [beside(1, 100, 0.05, cost=0.0), made.trial(2, GOOD, run=at(100, 0.05))],
        winner=1,
        objective=objective,
    )
    answer = found["answer"]
    assert answer["current"]["costPerHour"] is None
    assert "CurrentCostUnknown" in codes(found)
    assert not {"CurrentNotMeasured", "MeasuredBetter", "CurrentBetter"} & set(codes(found))
    assert all(point["x"] > 0 for front in found["fronts"] for point in front["points"])
    said = told(found)
    assert "whose cost is not known" in said["current"][0]
    assert any(sentence.startswith(words) for sentence in said["current"])
    assert not any("0 per hour" in sentence for sentence in said["current"])
    page.render(found)


def test_what_runs_today_and_crashed_is_said_to_have_been_tried():
    today = made.trial(1, {**GOOD, "memory": "256Mi", "batchSize": "16"}, purpose="Baseline")
    assert today["status"]["reason"] == "OutOfMemory"
    found = report([today, made.trial(2, GOOD, run=at(100, 0.05))], winner=1)
    assert "CurrentDidNotRun" in codes(found)
    assert told(found)["current"] == [
        "What runs today did not run when it was measured: what the recommendation saves is not known."
    ]


def test_without_prices_no_cost_is_said():
    trials = [made.trial(n, spec, run=at(100, 0.05)) for n, spec in enumerate((GOOD, OTHER), 1)]
    for trial in trials:
        trial["spec"]["costPerHour"] = 0.0
    found = report(trials, prices={}, objective={"objectiveMetricName": "throughput"})
    assert "costs" not in " ".join(told(found)["details"])
    assert "CurrentCostUnknown" not in codes(found)


@pytest.mark.parametrize(("latency", "narrow"), [(0.095, True), (0.05, False)])
def test_a_recommendation_that_its_own_noise_may_carry_beyond_a_limit_is_called_near(
    latency: float,
    *,
    narrow: bool,
):
    third = {**GOOD, "cpu": "4"}
    trials = [
        made.trial(n, spec, run=at(100, latency), wobble=1 + n / 300)
        for n, spec in enumerate((GOOD, OTHER, third), 1)
    ]
    found = report(trials)
    assert ("NarrowMargin" in codes(found)) == narrow
    assert any("so near to a limit" in words for words in told(found)["cautions"]) == narrow


def test_specs_that_ran_without_the_objective_being_computable_are_not_said_not_to_have_run():
    trials = [made.trial(n, spec, run=at(100, 0.05)) for n, spec in enumerate((GOOD, OTHER), 1)]
    asked = {"objectiveMetricName": "tokensPerSecond"}
    found = content.of(made.finished(trials, None, objective=asked), trials, NOW, DEFAULTS)
    assert found["answer"]["kind"] == "Failed"
    said = told(found)
    assert said["headline"] == ["The experiment failed: nothing can be recommended."]
    assert said["impossible"] == ["It gave up: the objective could not be computed of any measurement."]


def test_a_latency_that_was_given_up_on_is_no_bound_at_which_the_answer_changes():
    def hangs(settings: made.Settings, users: float) -> tuple[float, float]:
        return (100, 0.05) if users < 8 else (900, 30.0)

    trials = [made.trial(1, GOOD, run=at(110, 0.05)), made.trial(2, OTHER, run=hangs)]
    for trial in trials:
        trial["spec"]["costPerHour"] = 0.05
    assert trials[1]["status"]["windows"][-1]["latencies"][-1]["value"] == 30.0
    (change,) = report(trials)["bounds"]
    assert all(segment["start"] < 30 for segment in change["segments"])
