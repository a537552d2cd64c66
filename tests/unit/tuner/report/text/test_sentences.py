"""The sentences of a report, from its formatting."""

import copy
import json

import pytest

from serving.objects import Object
from serving.report_pages import formatting
from tests.objects.html_pages import HtmlPage
from tests.objects.tuning import experiments, measured_experiments
from tests.objects.tuning import planned_experiments as plans
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.search.decision_values import Recommend
from tuner.settings import DEFAULTS

DROPPED = "with too few measurements, or another ranking of the specs"
OWN_FIGURES = "the figures here are from this experiment alone"


def sentences_of(report: Object) -> dict[str, list[str]]:
    """Return the sentences with ordinary spaces."""
    return {
        section: [sentence.replace("\u00a0", " ") for sentence in parts]
        for section, parts in sentences.of(report).items()
    }


def estimate(value: float, low: float, high: float) -> Object:
    return {"value": value, "low": low, "high": high}


def compared(report: Object, value: float, low: float, high: float, verdict: str) -> Object:
    changed = copy.deepcopy(report)
    changed["answer"]["againstCurrent"] = {
        "factor": estimate(value, low, high),
        "verdict": verdict,
        "costPerHour": -0.05,
    }
    return changed


def test_sentences_are_a_function_of_the_json_alone(report: Object):
    assert sentences.of(json.loads(json.dumps(report))) == sentences.of(report)


def test_headline_has_the_spec_and_its_saving_with_the_interval(report: Object):
    (headline,) = sentences_of(compared(report, 1.5, 1.25, 2.0, "Better"))["headline"]
    assert headline.startswith("Run cpu=2 memory=")
    assert headline.endswith("the same work costs 33.3 % less (20 % to 50 %) than with today's spec.")


def test_headline_claims_no_saving_when_the_interval_includes_zero(report: Object):
    changed = sentences_of(compared(report, 1.02, 0.98, 1.06, "Unclear"))
    assert changed["headline"][0].endswith("its difference from today's spec is within the noise.")
    assert "%" not in changed["headline"][0]
    assert any("(from 2 % more to 5.7 % less)" in words for words in changed["current"])
    assert changed["current"][-1].endswith("so neither is proven better.")


def doubted(report: Object, **doubt: object) -> Object:
    changed = copy.deepcopy(report)
    changed["answer"]["doubt"] = {"trials": 6, "regret": 0.46, "breaks": None, "more": 13, **doubt}
    return changed


def test_headline_begins_with_the_doubt_when_the_recommendation_is_not_settled(report: Object):
    changed = doubted(compared(report, 1.5, 1.25, 2.0, "Better"))
    (headline,) = sentences_of(changed)["headline"]
    assert headline.startswith("Not settled after 6 trials: the best spec so far is cpu=2 memory=")
    assert headline.endswith(
        ": the same work costs 33.3 % less (20 % to 50 %) than with today's spec; expected regret 46 %;"
        " run 13 more trials."
    )
    assert f"set maxNumTrials to {report['spent']['trials'] + 13}" in sentences_of(changed)["spent"][-1]
    (title,) = HtmlPage(page.render(changed)).of("h1")
    assert title.text.startswith("Not settled after 6 trials: ")


def test_headline_has_the_chance_that_the_recommended_spec_breaks_a_constraint(report: Object):
    (headline,) = sentences_of(doubted(report, regret=None, breaks=0.38, more=0))["headline"]
    assert headline.endswith("; its next measurement breaks a constraint with a probability of 38 %.")


def test_headline_does_not_advise_to_keep_the_current_spec_when_it_is_not_settled(report: Object):
    changed = doubted(report)
    changed["answer"]["current"] = changed["answer"]["choice"]
    (headline,) = sentences_of(changed)["headline"]
    assert ", which runs today; expected regret 46 %; " in headline


def load_of(report: Object, **question: object) -> str:
    changed = copy.deepcopy(report)
    changed["question"] |= question
    return next(words for words in sentences_of(changed)["question"] if words.startswith("The requests are"))


def test_load_is_described_with_the_length_of_its_windows(report: Object):
    seconds = {"windowSeconds": 10, "probeSeconds": 2.5, "warmupSeconds": 3, "settleSeconds": 0.75}
    assert load_of(report, **seconds, requests="chat", levels=[]) == (
        "The requests are streamed chats of generated lengths; each user waits for an answer before its next"
        " request. A level of load was held for 2.5 s in the search, and that of the result for 10 s; 3 s of"
        " warm-up came before the first, and 750 ms before each other level."
    )
    listed = load_of(report, **seconds, levels=[1, 2])
    assert "Each level of load was held for 10 s; 3 s of warm-up came before the first" in listed
    assert load_of(report, **seconds | {"warmupSeconds": 0}, levels=[1]).endswith(" was held for 10 s.")


RULES = {
    "OnlySafe": "Only the recommended spec keeps the constraints with the allowance for noise",
    "HigherProbability": "Neither keeps the constraints with the allowance for noise, so the higher",
    "EqualProbability": "and the probabilities are equal, so the better objective decided",
    "BetterObjective": "Both keep the constraints with the allowance for noise, so the better objective",
    "EqualObjective": "their objectives are equal within the precision of a trial, so the higher probability",
}


@pytest.mark.parametrize("rule", RULES)
def test_other_spec_of_the_price_is_named_with_its_objective_its_probability_and_the_rule(
    report: Object, rule: str
):
    changed = copy.deepcopy(report)
    answer = changed["answer"]
    answer["probability"] = 0.9951
    answer["alternative"] = {"choice": answer["runnerUp"], "probability": 0.62, "rule": rule}
    named, chances, decided = sentences_of(changed)["alternative"]
    assert named.startswith("The best other spec of this price is cpu=")
    assert ": with it a million requests cost " in named
    assert ", and with the recommended spec " in named
    assert chances == (
        "The next measurement meets every constraint with a probability of 62 %,"
        " and over 99 % for the recommended spec."
    )
    assert RULES[rule] in decided
    assert " ".join(decided.split()) in HtmlPage(page.render(changed)).of("body")[0].text


def test_rule_names_no_constraint_without_any(report: Object):
    changed = copy.deepcopy(report)
    changed["question"]["constraints"] = changed["bounds"] = []
    changed["answer"] |= {"probability": 1.0}
    changed["answer"]["choice"]["checks"] = changed["answer"]["runnerUp"]["checks"] = []
    changed["answer"]["alternative"] = {
        "choice": changed["answer"]["runnerUp"],
        "probability": 1.0,
        "rule": "BetterObjective",
    }
    assert sentences_of(changed)["alternative"][1:] == [
        "The better objective decided, as expected from all trials."
    ]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({}, "There was no earlier experiment with the same parameters to start from."),
        (
            {"may": 0.6, "june": 0.4},
            f"The search also used may (60 %) and june (40 %); {OWN_FIGURES}.",
        ),
        (
            {"may": 1.0, "june": 0.0},
            f"The search also used may (100 %); june was not used, {DROPPED}; {OWN_FIGURES}.",
        ),
        (
            {"may": 0.0},
            f"Earlier experiments were not used in the end: may, {DROPPED}.",
        ),
    ],
)
def test_question_names_the_used_and_the_dropped_earlier_experiments(
    report: Object, weights: Object, words: str
):
    changed = copy.deepcopy(report)
    changed["question"]["warmStart"] = True
    changed["learned"] = [{"experiment": name, "weight": weight} for name, weight in weights.items()]
    assert words in sentences_of(changed)["question"]


def test_headline_names_the_constraint_that_the_current_spec_breaks(report: Object):
    changed = copy.deepcopy(report)
    changed["answer"]["current"]["checks"][0]["measured"] = estimate(0.14, 0.13, 0.15)
    assert sentences_of(changed)["headline"][0].endswith(": today's spec breaks p99 latency <= 100 ms.")


def test_headline_keeps_the_current_spec_when_it_is_the_best(report: Object):
    changed = copy.deepcopy(report)
    changed["answer"]["current"] = changed["answer"]["choice"]
    assert sentences_of(changed)["headline"][0].startswith("Keep cpu=2")


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
def test_gain_is_in_the_terms_of_the_objective(report: Object, metric: str, direction: str, words: str):
    changed = compared(report, 1.5, 1.25, 2.0, "Better")
    changed["question"] |= {"metric": metric, "direction": direction, "rate": 100.0}
    assert words in sentences_of(changed)["headline"][0]


def test_headline_has_the_extra_cost_of_a_worse_spec(report: Object):
    changed = sentences_of(compared(report, 0.8, 0.75, 0.85, "Worse"))
    assert "the same work costs 25 % more (17.6 % to 33.3 %)" in changed["headline"][0]


def test_price_sentence_has_the_threshold_and_the_gain(report: Object):
    changed = copy.deepcopy(report)
    chosen, runner_up = changed["answer"]["choice"], changed["answer"]["runnerUp"]

    def winner(choice: Object) -> Object:
        return {"trial": choice["trials"][-1], "settings": choice["settings"]}

    changed["prices"] = [
        {
            "price": "cpu",
            "today": 0.04,
            "segments": [
                {"start": 0.0, "end": 0.045, "at": 0.04, "factor": 1.0, **winner(chosen)},
                {"start": 0.045, "end": None, "at": 0.09, "factor": 1.25, **winner(runner_up)},
            ],
        }
    ]
    (words,) = sentences_of(changed)["prices"]
    assert words.startswith("If a core cost 0.045 per hour or more (today 0.04, which is near), cpu=2 ")
    assert words.endswith(" would win: at 0.09 the same work costs 20 % less.")


def test_price_sentence_without_another_winner(report: Object):
    changed = copy.deepcopy(report)
    changed["prices"][0]["segments"] = changed["prices"][0]["segments"][:1]
    assert sentences_of(changed)["prices"][0] == "No other measured spec wins at any price of a core."


def test_impossible_names_the_constraint_the_nearest_spec_and_the_least_bound_that_can_be_met():
    sections = sentences_of(content.of(*measured_experiments.story(count=6, bound=0.001), NOW, DEFAULTS))
    assert sections["headline"] == ["No measured spec meets p99 latency <= 1 ms: nothing can be recommended."]
    nearest, reach = sections["impossible"]
    assert nearest.startswith("The nearest spec is cpu=")
    assert "; at most 1 ms is allowed" in nearest
    assert " on the p99 latency can be met, by cpu=" in reach


def test_impossible_has_the_reason_of_a_failed_experiment():
    trials = [
        measured_experiments.trial(
            1, {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"}
        )
    ]
    trials[0]["status"] |= {"reason": "LoadFailed"}
    experiment = measured_experiments.finished(trials, None)
    experiment["status"]["conditions"] = [
        {
            "type": "Recommended",
            "status": "False",
            "reason": "LoadFailed",
            "message": "digits-cost-1: locust ended",
            "lastTransitionTime": "2026-11-22T04:00:00Z",
        }
    ]
    sections = sentences_of(content.of(experiment, trials, NOW, DEFAULTS))
    assert sections["headline"] == ["The experiment failed: nothing can be recommended."]
    assert sections["impossible"] == ["The reason: digits-cost-1: locust ended."]


def test_one_trial_is_in_the_singular():
    trials = [
        measured_experiments.trial(
            1, {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"}
        )
    ]
    sections = sentences_of(content.of(measured_experiments.finished(trials, None), trials, NOW, DEFAULTS))
    assert sections["spent"][0].startswith("1 trial was made (1 failed).")
    assert sections["impossible"] == ["1 trial ran out of memory."]


def of_model(trial: Object, digest: str) -> Object:
    return {**trial, "spec": {**trial["spec"], "modelDigest": digest}}


def test_trials_of_an_earlier_model_do_not_count_in_the_coverage():
    experiment, trials = measured_experiments.story()
    changed = [of_model(trial, "sha256:old") for trial in trials[:10]]
    changed += [of_model(trial, "sha256:new") for trial in trials[10:]]
    coverage = sentences_of(content.of(experiment, changed, NOW, DEFAULTS))["spent"][1]
    assert coverage == "Of 240 specs, 11 were measured (4.6 %)."


def test_ends_of_trials_are_those_without_a_result_of_the_present_model():
    small = {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"}
    large = {**small, "memory": "2Gi"}
    outside = measured_experiments.trial(4, large, purpose="Baseline")
    outside["spec"]["settings"] = []
    trials = [
        of_model(measured_experiments.trial(1, large), "sha256:old"),
        of_model(measured_experiments.trial(2, small), "sha256:old"),
        of_model(measured_experiments.trial(3, small), "sha256:new"),
        of_model(outside, "sha256:new"),
    ]
    experiment = measured_experiments.finished(trials, None)
    sections = sentences_of(content.of(experiment, trials, NOW, DEFAULTS))
    assert sections["impossible"] == ["1 trial ran out of memory."]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("NotReady", "3 trials were not ready in time."),
        ("Refused", "3 trials were refused."),
        ("Crashed", "3 trials crashed."),
    ],
)
def test_several_trials_are_in_the_plural(reason: str, words: str):
    spec = {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"}
    trials = [measured_experiments.trial(number, spec) for number in (1, 2, 3)]
    for trial in trials:
        trial["status"]["reason"] = reason
    assert sentences_of(content.of(measured_experiments.finished(trials, None), trials, NOW, DEFAULTS))[
        "impossible"
    ] == [words]


def test_stopped_trials_count_as_measured_and_each_spec_once(report: Object):
    changed = copy.deepcopy(report)
    changed["spent"] |= {"trials": 15, "succeeded": 12, "stoppedEarly": 3, "failed": 2, "running": 1}
    measured = {row["spec"] for row in report["trials"] if row["result"]}
    assert len(measured) < len(report["trials"])
    spent = sentences_of(changed)["spent"]
    assert spent[2].startswith("The search took ")
    assert spent[:2] == [
        "15 trials were made (12 measured, of which 3 stopped early; 2 failed; 1 running).",
        f"Of 240 specs, {len(measured)} were measured ({100 * len(measured) / 240:.2g} %).",
    ]


def test_page_does_not_compare_the_recommended_spec_with_itself(report: Object):
    assert report["prices"][0]["segments"]
    html = page.render(report)
    assert "0\u00a0% better" not in html


def test_report_of_a_model_version_has_no_comparison_with_a_current_spec(report: Object):
    changed = copy.deepcopy(report)
    changed["question"] |= {"inference": "", "modelVersion": "v1"}
    changed["answer"] |= {"current": None, "againstCurrent": None}
    assert sentences_of(changed)["current"] == []


def test_cautions_name_trials_by_number_and_mark_those_of_the_recommended_spec():
    experiment, trials = measured_experiments.story(count=4)
    for trial in trials:
        trial["status"]["notes"] = []
    trials[1]["status"]["notes"] = ["NotSteady"]
    trials[-2]["status"]["notes"] = ["GeneratorLimited"]
    sections = sentences_of(content.of(experiment, trials, NOW, DEFAULTS))
    assert "In trial 2 the measurement had not settled at its end." in sections["cautions"]
    number = trials[-2]["spec"]["number"]
    assert any(
        words.startswith(f"In trial {number} (one of the recommended spec's) the load generator")
        for words in sections["cautions"]
    )


def test_every_sentence_is_complete(report: Object):
    unfilled = ("None", "nan", "inf ", "{", "}", "  ", "..", "( ", " ,", formatting.DASH)
    for section in sentences_of(report).values():
        for sentence in section:
            assert sentence.endswith(".")
            assert sentence[0].isupper() or sentence[0].isdigit()
            for text in unfilled:
                assert text not in sentence, sentence


def test_expected_regret_refers_to_the_best_unmeasured_spec(report: Object):
    changed = copy.deepcopy(report)
    changed["spent"]["expectedRegret"] = 0.208
    assert sentences_of(changed)["spent"][-1] == (
        "The recommended spec is expected to fall 20.8 % short of the best spec that was not measured."
    )


def test_report_has_no_expected_regret_when_it_is_unknown(report: Object):
    changed = copy.deepcopy(report)
    changed["answer"]["kind"] = "Unfinished"
    changed["spent"]["expectedRegret"] = 1.0
    assert not any("short of" in words for words in sentences_of(changed)["spent"])


def test_status_has_the_expected_regret_in_the_words_of_the_report():
    status = plans.status(plans.world((0, experiments.measured())), Recommend(0, 0.208, "budget", best=0))
    (message,) = {each["message"] for each in status["conditions"] if each["type"] == "Recommended"}
    assert "; it is expected to fall 20.8\u00a0% short of the best spec that was not measured" in message
