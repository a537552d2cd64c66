"""What the answer rests on: which trials speak for a spec, and which specs may be named at all."""

from typing import Any

import pytest

from tests import measured_experiments as made
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page, sentences

Object = dict[str, Any]
GOOD = {"cpu": "1", "memory": "512Mi", "batchSize": "4", "OMP_NUM_THREADS": "1"}
OTHER = {"cpu": "2", "memory": "1Gi", "batchSize": "4", "OMP_NUM_THREADS": "2"}


def at(done: float, latency: float) -> made.Service:
    """Return a service that does this whatever is asked of it."""
    return lambda settings, users: (done, latency)


def report(trials: list[Object], winner: int = 0, **changed: Any) -> Object:
    return content.of(made.finished(trials, trials[winner], **changed), trials, NOW)


def codes(found: Object) -> list[str]:
    return [caution["code"] for caution in found["cautions"]]


def told(found: Object) -> dict[str, list[str]]:
    """Return the sentences with ordinary spaces."""
    return {k: [words.replace("\u00a0", " ") for words in said] for k, said in sentences.of(found).items()}


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
