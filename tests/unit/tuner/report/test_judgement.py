"""The answer: the trials that count for a spec, and the specs that it may name."""

import copy
from typing import Any

import pytest

from serving.objects import Object
from tests.objects.tuning import measured_experiments
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.settings import DEFAULTS

GOOD = {"cpu": "1", "memory": "512Mi", "batchSize": "4", "OMP_NUM_THREADS": "1"}
OTHER = {"cpu": "2", "memory": "1Gi", "batchSize": "4", "OMP_NUM_THREADS": "2"}


def constant(throughput: float, latency: float) -> measured_experiments.ServiceModel:
    """Return a service with this throughput and latency for any spec and load."""
    return lambda settings, users: (throughput, latency)


def report(trials: list[Object], winner: int = 0, **changed: Any) -> Object:
    return content.of(measured_experiments.finished(trials, trials[winner], **changed), trials, NOW, DEFAULTS)


def codes(report: Object) -> list[str]:
    return [caution["code"] for caution in report["cautions"]]


def sentences_of(report: Object) -> dict[str, list[str]]:
    """Return the sentences with ordinary spaces."""
    return {
        section: [sentence.replace("\u00a0", " ") for sentence in parts]
        for section, parts in sentences.of(report).items()
    }


def test_a_lead_is_unclear_when_repeated_trials_differ_by_more():
    ahead = measured_experiments.trial(1, GOOD, run=constant(110, 0.05))
    behind = measured_experiments.trial(2, {**GOOD, "OMP_NUM_THREADS": "2"}, run=constant(100, 0.05))
    experiment = measured_experiments.finished([ahead, behind], ahead)
    answer = content.of(experiment, [ahead, behind], NOW, DEFAULTS)["answer"]
    assert answer["againstRunnerUp"]["verdict"] == "Better"
    experiment["status"]["repeatability"] = 0.15
    result = content.of(experiment, [ahead, behind], NOW, DEFAULTS)
    assert result["answer"]["againstRunnerUp"]["verdict"] == "Unclear"
    assert any(
        words.startswith("Repeated measurements of a spec typically differ by 16")
        for words in sentences_of(result)["details"]
    )


def test_a_recommendation_with_a_large_expected_regret_is_doubted():
    trials = [
        measured_experiments.trial(1, GOOD, run=constant(100, 0.05)),
        measured_experiments.trial(2, OTHER, run=constant(90, 0.05)),
    ]
    experiment = measured_experiments.finished(trials, trials[0])
    assert content.of(experiment, trials, NOW, DEFAULTS)["answer"]["doubt"] is None
    experiment["status"]["expectedRegret"] = 0.46
    experiment["status"]["recommendation"]["probability"] = 0.7
    result = content.of(experiment, trials, NOW, DEFAULTS)
    doubt = result["answer"]["doubt"]
    assert doubt == {"trials": 2, "regret": 0.46, "breaks": pytest.approx(0.3), "more": 46}
    (headline,) = sentences_of(result)["headline"]
    assert headline.startswith("Not settled after 2 trials: the best spec so far is cpu=1 memory=512Mi ")
    assert headline.endswith(
        "; expected regret 46 %; its next measurement breaks a constraint with a probability of 30 %;"
        " run 46 more trials."
    )
    running = copy.deepcopy(experiment)
    running["status"] |= {"phase": "Running", "best": running["status"].pop("recommendation")}
    assert content.of(running, trials, NOW, DEFAULTS)["answer"]["doubt"] is None


def test_the_other_spec_of_the_price_is_that_of_the_search_with_all_its_measurements():
    same_price = {**GOOD, "batchSize": "8"}
    trials = [
        measured_experiments.trial(1, GOOD, run=constant(100, 0.05)),
        measured_experiments.trial(2, same_price, run=constant(130, 0.09)),
        measured_experiments.trial(3, same_price, run=constant(110, 0.09), purpose="Confirm"),
    ]
    experiment = measured_experiments.finished(trials, trials[0])
    other = {"trial": "digits-cost-3", "settings": trials[2]["spec"]["settings"], "objective": 1.0}
    experiment["status"]["recommendation"] |= {
        "probability": 0.999,
        "alternative": {**other, "low": 0.5, "high": 2.0, "probability": 0.7, "rule": "OnlySafe"},
    }
    result = content.of(experiment, trials, NOW, DEFAULTS)
    alternative = result["answer"]["alternative"]
    assert alternative["choice"]["trials"] == ["digits-cost-2", "digits-cost-3"]
    rates = [trial["status"]["result"]["throughput"]["value"] for trial in trials[1:]]
    cost = trials[1]["spec"]["costPerHour"]
    pooled = 3600 * (rates[0] * rates[1]) ** 0.5 / cost
    assert alternative["choice"]["objective"]["value"] == pytest.approx(pooled)
    named, chances, _ = sentences_of(result)["alternative"]
    assert named.startswith("The best other spec of this price is cpu=1 memory=512Mi batchSize=8 ")
    assert chances.endswith(" with a probability of 70 %, and over 99 % for the recommended spec.")


def test_a_confirmation_that_breaks_a_constraint_counts_and_is_named():
    once = measured_experiments.trial(1, GOOD, run=constant(100, 0.080))
    again = measured_experiments.trial(2, GOOD, run=constant(100, 0.110), purpose="Confirm")
    assert again["status"]["reason"] == "BreaksConstraint"
    result = report([once, again])
    choice = result["answer"]["choice"]
    assert choice["trials"] == ["digits-cost-1"]
    assert choice["broken"] == ["digits-cost-2"]
    assert choice["checks"][0]["measured"]["value"] == pytest.approx((0.080 * 0.110) ** 0.5)
    assert "BrokeConstraint" in codes(result)
    assert "NotConfirmed" not in codes(result)
    assert any(
        words.startswith("Trial 2 (one of the recommended spec's) measured the same spec, which broke")
        for words in sentences_of(result)["cautions"]
    )


def test_a_spec_is_no_runner_up_when_its_pooled_latency_breaks_a_constraint():
    trials = [
        measured_experiments.trial(1, GOOD, run=constant(100, 0.050)),
        measured_experiments.trial(2, OTHER, run=constant(150, 0.080)),
        measured_experiments.trial(3, OTHER, run=constant(150, 0.200), purpose="Confirm"),
    ]
    assert report(trials)["answer"]["runnerUp"] is None


def test_a_lead_is_unclear_when_an_interval_has_no_lower_end():
    trials = [
        measured_experiments.trial(1, GOOD, run=constant(120, 0.05)),
        measured_experiments.trial(2, OTHER, run=constant(100, 0.05)),
    ]
    for trial in trials:
        trial["spec"]["costPerHour"] = 0.05
        trial["status"]["result"]["throughput"] |= {"low": 0.0, "high": 200.0}
    result = report(trials)
    assert result["answer"]["againstRunnerUp"]["verdict"] == "Unclear"
    assert any("or more" in words for words in sentences_of(result)["details"])
    assert "or more" in page.render(result)


@pytest.mark.parametrize("reason", ["LoadFailed", "Interrupted"])
def test_a_trial_without_a_result_does_not_count_against_its_spec(reason: str):
    trials = [
        measured_experiments.trial(n, spec, run=constant(100, 0.05))
        for n, spec in enumerate((GOOD, OTHER, OTHER), 1)
    ]
    trials[1]["status"] = {"phase": "Failed", "reason": reason, "seconds": 3.0}
    assert report(trials)["answer"]["runnerUp"]["trials"] == ["digits-cost-3"]


@pytest.mark.parametrize("reason", ["OutOfMemory", "Crashed", "TimedOut"])
def test_a_spec_that_failed_under_load_is_no_runner_up_and_wins_at_no_price(reason: str):
    trials = [
        measured_experiments.trial(n, spec, run=constant(100, 0.05))
        for n, spec in enumerate((GOOD, OTHER, OTHER), 1)
    ]
    trials[2]["status"] |= {"phase": "Failed", "reason": reason, "result": None}
    assert trials[2]["status"]["windows"]
    result = report(trials)
    assert result["answer"]["runnerUp"] is None
    winners = {s["trial"] for change in (*result["prices"], *result["bounds"]) for s in change["segments"]}
    assert winners <= {"", "digits-cost-1"}


def outside(number: int, throughput: float, latency: float, cost: float) -> Object:
    """Return a trial of today's spec, whose cores are outside the space."""
    trial = measured_experiments.trial(number, GOOD, run=constant(throughput, latency), purpose="Baseline")
    for setting in trial["spec"]["settings"]:
        if setting["name"] == "cpu":
            setting["value"] = "300m"
    trial["spec"]["costPerHour"] = cost
    return trial


def test_a_current_spec_outside_the_space_is_kept_when_it_is_surely_better():
    result = report(
        [outside(1, 100, 0.05, cost=0.02), measured_experiments.trial(2, GOOD, run=constant(100, 0.05))],
        winner=1,
    )
    assert result["answer"]["againstCurrent"]["verdict"] == "Worse"
    assert "CurrentBetter" in codes(result)
    (headline,) = sentences_of(result)["headline"]
    assert headline.startswith("Keep cpu=300m memory=512Mi ")
    assert "with the best spec of the space, cpu=1 " in headline
    assert " more (" in headline
    assert "slipway tune apply" not in page.render(result)


def test_a_current_spec_outside_the_space_is_not_kept_when_it_breaks_a_constraint():
    result = report(
        [outside(1, 100, 0.2, cost=0.02), measured_experiments.trial(2, GOOD, run=constant(100, 0.05))],
        winner=1,
    )
    assert "CurrentBetter" not in codes(result)
    assert sentences_of(result)["headline"][0].startswith("Run cpu=1 ")


def test_a_spec_outside_the_space_is_neither_runner_up_nor_measured_better():
    result = report(
        [outside(1, 100, 0.05, cost=0.02), measured_experiments.trial(2, GOOD, run=constant(100, 0.05))],
        winner=1,
    )
    assert result["answer"]["runnerUp"] is None
    assert "MeasuredBetter" not in codes(result)


STREAMED = {"metric": "ttft", "percentile": 99, "atMost": "50ms"}


def test_a_constraint_without_a_value_is_not_met():
    trials = [
        measured_experiments.trial(1, GOOD, run=constant(100, 0.05)),
        measured_experiments.trial(2, OTHER, run=constant(100, 0.05)),
    ]
    result = report(trials, constraints=[STREAMED])
    assert result["answer"]["runnerUp"] is None
    assert any(
        words.startswith("The p99 time to first token has no value")
        for words in sentences_of(result)["details"]
    )


def test_a_constraint_without_a_value_in_any_trial_is_the_obstacle():
    trials = [measured_experiments.trial(1, GOOD, run=constant(100, 0.05))]
    result = content.of(
        measured_experiments.finished(trials, None, constraints=[STREAMED]), trials, NOW, DEFAULTS
    )
    assert result["answer"]["kind"] == "Impossible"
    assert result["answer"]["obstacle"]["constraint"] == 0
    assert "without a value of the p99 time to first token" in sentences_of(result)["impossible"][0]


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ({"objectiveMetricName": "throughput"}, "With the recommended spec a replica answers "),
        ({"objectiveMetricName": "throughputPerCost"}, "Its objective cannot be computed"),
        ({"objectiveMetricName": "cost", "type": "minimize"}, "Its objective cannot be computed"),
    ],
)
def test_cost_of_the_current_spec_is_unknown_without_limits(objective: Object, words: str):
    result = report(
        [outside(1, 100, 0.05, cost=0.0), measured_experiments.trial(2, GOOD, run=constant(100, 0.05))],
        winner=1,
        objective=objective,
    )
    answer = result["answer"]
    assert answer["current"]["costPerHour"] is None
    assert "CurrentCostUnknown" in codes(result)
    assert not {"CurrentNotMeasured", "MeasuredBetter", "CurrentBetter"} & set(codes(result))
    assert all(point["x"] > 0 for front in result["fronts"] for point in front["points"])
    current = sentences_of(result)["current"]
    assert "its cost is unknown" in current[0]
    assert any(sentence.startswith(words) for sentence in current)
    assert not any("0 per hour" in sentence for sentence in current)
    page.render(result)


def test_a_current_spec_that_failed_is_named_as_measured():
    today = measured_experiments.trial(1, {**GOOD, "memory": "256Mi", "batchSize": "16"}, purpose="Baseline")
    assert today["status"]["reason"] == "OutOfMemory"
    result = report([today, measured_experiments.trial(2, GOOD, run=constant(100, 0.05))], winner=1)
    assert "CurrentDidNotRun" in codes(result)
    assert sentences_of(result)["current"] == [
        "Today's spec failed when it was measured: the saving is unknown."
    ]


def test_report_has_no_cost_without_prices():
    trials = [
        measured_experiments.trial(n, spec, run=constant(100, 0.05))
        for n, spec in enumerate((GOOD, OTHER), 1)
    ]
    for trial in trials:
        trial["spec"]["costPerHour"] = 0.0
    result = report(trials, prices={}, objective={"objectiveMetricName": "throughput"})
    assert "costs" not in " ".join(sentences_of(result)["details"])
    assert "CurrentCostUnknown" not in codes(result)


@pytest.mark.parametrize(("latency", "narrow"), [(0.095, True), (0.05, False)])
def test_a_recommendation_within_the_noise_of_a_limit_has_a_caution(
    latency: float,
    *,
    narrow: bool,
):
    large = {**GOOD, "cpu": "4"}
    trials = [
        measured_experiments.trial(n, spec, run=constant(100, latency), wobble=1 + n / 300)
        for n, spec in enumerate((GOOD, OTHER, large), 1)
    ]
    result = report(trials)
    assert ("NarrowMargin" in codes(result)) == narrow
    assert any("so near to a limit" in words for words in sentences_of(result)["cautions"]) == narrow


def test_answer_is_failed_when_the_objective_cannot_be_computed_from_any_trial():
    trials = [
        measured_experiments.trial(n, spec, run=constant(100, 0.05))
        for n, spec in enumerate((GOOD, OTHER), 1)
    ]
    objective = {"objectiveMetricName": "tokensPerSecond"}
    result = content.of(
        measured_experiments.finished(trials, None, objective=objective), trials, NOW, DEFAULTS
    )
    assert result["answer"]["kind"] == "Failed"
    sections = sentences_of(result)
    assert sections["headline"] == ["The experiment failed: nothing can be recommended."]
    assert sections["impossible"] == ["The reason: the objective could not be computed from any measurement."]


def test_answer_is_nothing_ran_when_only_the_current_spec_outside_the_space_was_measured():
    out_of_memory = measured_experiments.trial(2, {**GOOD, "memory": "256Mi", "batchSize": "16"})
    assert out_of_memory["status"]["reason"] == "OutOfMemory"
    trials = [outside(1, 100, 0.05, cost=0.02), out_of_memory]
    result = content.of(measured_experiments.finished(trials, None), trials, NOW, DEFAULTS)
    assert result["answer"]["kind"] == "NothingRan"
    assert result["answer"]["current"]["trials"] == ["digits-cost-1"]
    page.render(result)


def test_answer_has_the_reason_of_the_status_when_every_load_of_the_space_failed():
    lost = measured_experiments.trial(2, GOOD)
    lost["status"] = {"phase": "Failed", "reason": "LoadFailed", "seconds": 3.0}
    trials = [outside(1, 100, 0.05, cost=0.02), lost]
    experiment = measured_experiments.finished(trials, None)
    reason = {"reason": "LoadFailed", "message": "digits-cost-2: there is no ConfigMap requests"}
    experiment["status"]["conditions"] = [
        {"type": "Recommended", "status": "False", "lastTransitionTime": "2026-11-22T04:25:00Z", **reason}
    ]
    answer = content.of(experiment, trials, NOW, DEFAULTS)["answer"]
    assert (answer["kind"], answer["message"]) == ("Failed", reason["message"])


def test_a_latency_at_the_request_timeout_is_no_threshold():
    def hangs(settings: measured_experiments.Settings, users: float) -> tuple[float, float]:
        return (100, 0.05) if users < 8 else (900, 30.0)

    trials = [
        measured_experiments.trial(1, GOOD, run=constant(110, 0.05)),
        measured_experiments.trial(2, OTHER, run=hangs),
    ]
    for trial in trials:
        trial["spec"]["costPerHour"] = 0.05
    assert trials[1]["status"]["windows"][-1]["latencies"][-1]["value"] == 30.0
    (change,) = report(trials)["bounds"]
    assert all(segment["start"] < 30 for segment in change["segments"])
