"""What is said, and that it is said of the numbers."""

import copy
import json

import pytest

from serving.objects import Object
from tests.objects import experiments
from tests.objects import measured_experiments as made
from tests.objects import planned_experiments as plans
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.search.decision import Recommend
from tuner.settings import DEFAULTS


def told(report: Object) -> dict[str, list[str]]:
    """Return the sentences with ordinary spaces."""
    return {k: [words.replace("\u00a0", " ") for words in said] for k, said in sentences.of(report).items()}


def estimate(value: float, low: float, high: float) -> Object:
    return {"value": value, "low": low, "high": high}


def compared(report: Object, value: float, low: float, high: float, verdict: str) -> Object:
    found = copy.deepcopy(report)
    found["answer"]["againstCurrent"] = {
        "factor": estimate(value, low, high), "verdict": verdict, "costPerHour": -0.05,
    }  # fmt: skip
    return found


def test_sentences_are_a_function_of_the_json_alone(report: Object):
    assert sentences.of(json.loads(json.dumps(report))) == sentences.of(report)


def test_headline_says_what_to_run_and_what_it_saves_with_its_interval(report: Object):
    (headline,) = told(compared(report, 1.5, 1.25, 2.0, "Better"))["headline"]
    assert headline.startswith("Run cpu=2 memory=")
    assert headline.endswith(
        "the same work costs 33.3 % less (20 % to 50 %) than with the spec that runs today."
    )


def test_headline_claims_no_saving_where_the_interval_includes_none(report: Object):
    found = told(compared(report, 1.02, 0.98, 1.06, "Unclear"))
    assert found["headline"][0].endswith(
        "whether it is better than the spec that runs today is within the noise."
    )
    assert "%" not in found["headline"][0]
    assert any("(from 2 % more to 5.7 % less)" in words for words in found["current"])
    assert found["current"][-1].endswith("so that neither is proven better.")


@pytest.mark.parametrize(("weights", "words"), [
    ({}, "No earlier experiment with the same parameters says where to begin."),
    ({"may": 0.6, "june": 0.4},
     "Where to look was learned from may (60 %) and june (40 %) as well; no number here is theirs."),
    ({"may": 1.0, "june": 0.0},
     ("Where to look was learned from may (100 %) as well; not used was june, which measured too little, or ranks the specs"
      " otherwise than the trials here; no number here is theirs.")),
    ({"may": 0.0},
     "Earlier experiments were not used in the end: may measured too little, or ranks the specs otherwise than the trials here."),
])  # fmt: skip
def test_a_warm_start_is_said_to_have_been_used_or_dropped(report: Object, weights: Object, words: str):
    found = copy.deepcopy(report)
    found["question"]["warmStart"] = True
    found["learned"] = [{"experiment": name, "weight": weight} for name, weight in weights.items()]
    assert words in told(found)["question"]


def test_headline_says_that_todays_spec_breaks_its_bound(report: Object):
    found = copy.deepcopy(report)
    found["answer"]["current"]["checks"][0]["measured"] = estimate(0.14, 0.13, 0.15)
    assert told(found)["headline"][0].endswith(": today's spec breaks p99 latency <= 100 ms.")


def test_headline_says_to_keep_what_is_best_already(report: Object):
    found = copy.deepcopy(report)
    found["answer"]["current"] = found["answer"]["choice"]
    assert told(found)["headline"][0].startswith("Keep cpu=2")


@pytest.mark.parametrize(
    ("metric", "direction", "words"),
    [
        ("throughputPerCost", "maximize", "the same work costs 33.3 % less (20 % to 50 %)"),
        ("throughput", "maximize", "a replica answers 50 % more (25 % to 100 %)"),
        ("latency", "minimize", "the p99 latency is 33.3 % less (20 % to 50 %)"),
        ("costAtRate", "minimize", "the same work costs 33.3 % less (20 % to 50 %)"),
        ("cost", "minimize", "a replica costs 33.3 % less (20 % to 50 %)"),
    ],
)
def test_gain_is_told_in_the_terms_of_the_objective(report: Object, metric: str, direction: str, words: str):
    found = compared(report, 1.5, 1.25, 2.0, "Better")
    found["question"] |= {"metric": metric, "direction": direction, "rate": 100.0}
    assert words in told(found)["headline"][0]


def test_a_worse_spec_is_not_called_a_saving(report: Object):
    found = told(compared(report, 0.8, 0.75, 0.85, "Worse"))
    assert "the same work costs 25 % more (17.6 % to 33.3 %)" in found["headline"][0]


def test_changes_say_where_and_by_how_much(report: Object):
    found = copy.deepcopy(report)
    chosen, other = found["answer"]["choice"], found["answer"]["runnerUp"]
    found["prices"] = [
        {
            "price": "cpu",
            "today": 0.04,
            "segments": [
                {"start": 0.0, "end": 0.045, "trial": chosen["trials"][-1], "settings": chosen["settings"], "at": 0.04, "factor": 1.0},
                {"start": 0.045, "end": None, "trial": other["trials"][-1], "settings": other["settings"], "at": 0.09, "factor": 1.25},
            ],
        }
    ]  # fmt: skip
    (words,) = told(found)["prices"]
    assert words.startswith("Were a core 0.045 per hour or dearer (today 0.04, which is near), cpu=2 ")
    assert words.endswith(" would win: at 0.09 the same work costs 20 % less with it.")


def test_a_price_that_decides_nothing_is_said_to(report: Object):
    found = copy.deepcopy(report)
    found["prices"][0]["segments"] = found["prices"][0]["segments"][:1]
    assert told(found)["prices"][0] == "Whatever a core costs, no other measured spec wins."


def test_impossible_says_which_constraint_the_nearest_and_what_could_be_met():
    found = told(content.of(*made.story(count=6, bound=0.001), NOW, DEFAULTS))
    assert found["headline"] == ["No measured spec meets p99 latency <= 1 ms: nothing can be recommended."]
    nearest, reach = found["impossible"]
    assert nearest.startswith("Nearest came cpu=")
    assert "and at most 1 ms is allowed" in nearest
    assert "would have been met: by cpu=" in reach


def test_an_experiment_that_failed_says_why_its_controller_gave_up():
    trials = [made.trial(1, {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"})]
    trials[0]["status"] |= {"reason": "LoadFailed"}
    experiment = made.finished(trials, None)
    experiment["status"]["conditions"] = [
        {"type": "Recommended", "status": "False", "reason": "LoadFailed", "message": "digits-cost-1: locust ended",
         "lastTransitionTime": "2026-11-22T04:00:00Z"}
    ]  # fmt: skip
    found = told(content.of(experiment, trials, NOW, DEFAULTS))
    assert found["headline"] == ["The experiment failed: nothing can be recommended."]
    assert found["impossible"] == ["It gave up: digits-cost-1: locust ended."]


def test_one_trial_is_singular():
    trials = [made.trial(1, {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"})]
    found = told(content.of(made.finished(trials, None), trials, NOW, DEFAULTS))
    assert found["spent"][0].startswith("1 trial was made (1 failed).")
    assert found["impossible"] == ["1 trial ran out of memory."]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("NotReady", "3 trials were not ready in time."),
        ("Refused", "3 trials were refused."),
        ("Crashed", "3 trials crashed."),
    ],
)
def test_several_trials_are_plural(reason: str, words: str):
    spec = {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"}
    trials = [made.trial(number, spec) for number in (1, 2, 3)]
    for trial in trials:
        trial["status"]["reason"] = reason
    assert told(content.of(made.finished(trials, None), trials, NOW, DEFAULTS))["impossible"] == [words]


def test_what_was_stopped_early_is_of_what_was_measured_and_specs_count_once(report: Object):
    found = copy.deepcopy(report)
    found["spent"] |= {"trials": 15, "succeeded": 12, "stoppedEarly": 3, "failed": 2, "running": 1}
    measured = {row["spec"] for row in report["trials"] if row["result"]}
    assert len(measured) < len(report["trials"])
    assert told(found)["spent"][:2] == [
        "15 trials were made (12 measured, of which 3 stopped early; 2 failed; 1 running).",
        f"Of 240 specs, {len(measured)} were measured ({100 * len(measured) / 240:.2g} %).",
    ]


def test_a_recommended_spec_is_not_compared_with_itself(report: Object):
    assert report["prices"][0]["segments"]
    html = page.render(report)
    assert "0\u00a0% better" not in html


def test_nothing_is_said_of_today_where_nothing_runs(report: Object):
    found = copy.deepcopy(report)
    found["question"] |= {"inference": "", "modelVersion": "v1"}
    found["answer"] |= {"current": None, "againstCurrent": None}
    assert told(found)["current"] == []


def test_cautions_name_trials_by_number_and_whether_they_count():
    experiment, trials = made.story(count=4)
    for trial in trials:
        trial["status"]["notes"] = []
    trials[1]["status"]["notes"] = ["NotSteady"]
    trials[-2]["status"]["notes"] = ["GeneratorLimited"]
    found = told(content.of(experiment, trials, NOW, DEFAULTS))
    assert "In trial 2 the measurement had not settled when it ended." in found["cautions"]
    number = trials[-2]["spec"]["number"]
    assert any(
        words.startswith(f"In trial {number} (one of the recommended spec's) the load generator")
        for words in found["cautions"]
    )


def test_no_sentence_has_a_hole(report: Object):
    for said in told(report).values():
        for words in said:
            assert words.endswith(".")
            assert words[0].isupper() or words[0].isdigit()
            for hole in ("None", "nan", "inf ", "{", "}", "  ", "..", "( ", " ,", "–"):  # noqa: RUF001 the dash of no number
                assert hole not in words, words


def test_what_was_missed_is_said_of_the_specs_that_were_not_measured(report: Object):
    found = copy.deepcopy(report)
    found["spent"]["expectedRegret"] = 0.208
    assert told(found)["spent"][-1] == (
        "The recommended spec is expected to fall 20.8 % short of the best spec that was not measured."
    )


def test_nothing_is_said_of_what_was_missed_where_nothing_is_known(report: Object):
    found = copy.deepcopy(report)
    found["answer"]["kind"] = "Unfinished"
    found["spent"]["expectedRegret"] = 1.0
    assert not any("short of" in words for words in told(found)["spent"])


def test_the_status_says_what_was_missed_as_the_report_does():
    said = plans.status(plans.world((0, experiments.measured())), Recommend(0, None, 0.208, "budget"))
    (message,) = {one["message"] for one in said["conditions"] if one["type"] == "Recommended"}
    assert message.endswith(
        "; it is expected to fall 20.8\u00a0% short of the best spec that was not measured"
    )
