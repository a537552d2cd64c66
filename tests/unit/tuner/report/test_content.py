"""The figures of the report, against its trials."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

from serving.errors import SpaceInvalid
from serving.objects import Object
from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import Window
from tests.objects.tuning import measured_experiments
from tests.unit.tuner.report.conftest import NOW
from tuner.load.level_search import load_model, results
from tuner.report import content
from tuner.report.schema import Report
from tuner.search import ranking
from tuner.settings import DEFAULTS

SCHEMA = Path(__file__).parents[3] / "golden" / "report.schema.json"


def test_report_follows_its_schema_and_survives_json(report: Object):
    parsed = json.loads(json.dumps(report, allow_nan=False))
    assert parsed == report
    jsonschema.validate(parsed, json.loads(SCHEMA.read_text()))


def test_schema_is_the_golden_one():
    """A change that does more than add needs a new version of the report."""
    assert Report.model_json_schema(by_alias=True) == json.loads(SCHEMA.read_text())


def test_report_does_not_depend_on_the_order_of_trials():
    experiment, trials = measured_experiments.story(count=4)
    assert content.of(experiment, trials, NOW, DEFAULTS) == content.of(
        experiment, trials[::-1], NOW, DEFAULTS
    )


def test_report_has_every_trial_with_its_windows_and_reason(report: Object):
    _, trials = measured_experiments.story()
    assert [row["name"] for row in report["trials"]] == [trial["metadata"]["name"] for trial in trials]
    for row, trial in zip(report["trials"], trials, strict=True):
        assert row["reason"] == trial["status"]["reason"]
        assert len(row["windows"]) == len(trial["status"].get("windows", []))


@pytest.mark.parametrize(
    ("source", "requests"),
    [
        ({}, "model"),
        ({"chat": {}}, "chat"),
        ({"requestTemplate": {"path": "/"}}, "template"),
        ({"requests": {"name": "a", "key": "b"}}, "recorded"),
        ({"locustfile": {"name": "a", "key": "b"}}, "locustfile"),
    ],
)
def test_question_has_the_source_of_the_requests(source: Object, requests: str):
    experiment, trials = measured_experiments.story(count=4)
    experiment["spec"]["load"] = source
    assert content.of(experiment, trials, NOW, DEFAULTS)["question"]["requests"] == requests


def by_name(report: Object) -> dict[str, Object]:
    return {row["name"]: row for row in report["trials"]}


def test_recommendation_pools_all_measurements_of_its_spec(report: Object):
    choice = report["answer"]["choice"]
    rows = [by_name(report)[name] for name in choice["trials"]]
    assert len(rows) == 2
    assert all(row["spec"] == choice["spec"] for row in rows)
    values = [row["objective"]["value"] for row in rows]
    assert choice["objective"]["value"] == pytest.approx(math.sqrt(math.prod(values)))
    assert choice["objective"]["low"] < min(values) < max(values) < choice["objective"]["high"]


def test_saving_is_the_ratio_of_the_measured_objectives(report: Object):
    answer = report["answer"]
    ratio = answer["choice"]["objective"]["value"] / answer["current"]["objective"]["value"]
    factor = answer["againstCurrent"]["factor"]
    assert factor["value"] == pytest.approx(ratio)
    assert factor["low"] < factor["value"] < factor["high"]
    assert answer["againstCurrent"]["verdict"] == ("Better" if factor["low"] > 1 else "Unclear")


def test_winner_changes_at_the_price_where_both_specs_cost_the_same(report: Object):
    """The expected cost is computed from the throughput of every trial at that price."""
    rows = by_name(report)
    sizes = {name: {s["name"]: s["value"] for s in row["settings"]} for name, row in rows.items()}
    for change in report["prices"]:
        today = {**report["question"]["prices"]}

        def cost(name: str, price: float, change: Object = change, today: Object = today) -> float:
            prices = {**today, change["price"]: price}
            hour = (
                measured_experiments.CORES[sizes[name]["cpu"]] * prices["cpu"]
                + measured_experiments.GIB[sizes[name]["memory"]] * prices["memory"]
            )
            rates = [
                row["result"]["throughput"]["value"]
                for row in rows.values()
                if row["spec"] == rows[name]["spec"] and row["reason"] == "Measured"
            ]
            return hour / math.prod(rates) ** (1 / len(rates))

        assert len(change["segments"]) > 1
        for before, after in zip(change["segments"], change["segments"][1:], strict=False):
            price = after["start"]
            assert before["end"] == price
            assert cost(before["trial"], price) == pytest.approx(cost(after["trial"], price))
            assert cost(before["trial"], price * 0.99) < cost(after["trial"], price * 0.99)
            assert cost(before["trial"], price * 1.01) > cost(after["trial"], price * 1.01)
        for segment in change["segments"]:
            chosen = report["answer"]["choice"]["trials"][-1]
            ratio = cost(chosen, segment["at"]) / cost(segment["trial"], segment["at"])
            assert segment["factor"] == pytest.approx(ratio)


def loads_of(row: Object, bound: float) -> list[tuple[float, float]]:
    """Return the needed bound and the throughput of each load of a trial; its result needs `bound`."""
    windows = [Window.model_validate(window) for window in row["windows"]]
    limit = Constraint(metric="latency", percentile=99, at_most=f"{1000 * bound:g}ms")
    loads = results.load_points(
        results.state_of(ExperimentLoad(), [limit], windows, DEFAULTS.load), every=False
    )
    pairs = [(load.needs[0], load.window.throughput.value) for load in loads]
    return [*pairs, (bound, row["result"]["throughput"]["value"])]


def test_winner_at_every_needed_bound_is_the_best_allowed_spec(report: Object):
    """The expected winner is chosen at each bound that a load of a trial needs."""
    (change,) = report["bounds"]
    specs: dict[int, list[tuple[float, list[tuple[float, float]]]]] = {}
    for row in report["trials"]:
        if row["reason"] == "Measured":
            specs.setdefault(row["spec"], []).append((row["costPerHour"], loads_of(row, change["today"])))

    def worth(spec: int, bound: float) -> float:
        scores = [
            max((rate for needed, rate in loads if needed <= bound), default=0.0) / cost
            for cost, loads in specs[spec]
        ]
        return math.prod(scores) ** (1 / len(scores))

    ours = report["answer"]["choice"]["spec"]
    field = [
        spec for spec in specs if spec == ours or worth(spec, change["today"]) <= worth(ours, change["today"])
    ]
    names = {row["name"]: row["spec"] for row in report["trials"]}
    bounds = sorted({needed for rows in specs.values() for _, loads in rows for needed, _ in loads})
    assert len(change["segments"]) > 2
    for bound in bounds:
        (segment,) = [
            s for s in change["segments"] if s["start"] <= bound and (s["end"] is None or bound < s["end"])
        ]
        best = max(worth(spec, bound) for spec in field)
        assert worth(names[segment["trial"]], bound) == pytest.approx(best) if segment["trial"] else best == 0
        if segment["factor"] is not None:
            at = segment["at"]
            assert segment["factor"] == pytest.approx(worth(names[segment["trial"]], at) / worth(ours, at))


def test_points_on_a_front_are_not_dominated(report: Object):
    assert [front["measure"] for front in report["fronts"]] == ["throughput", "latency"]
    for front in report["fronts"]:
        sign = -1 if front["better"] == "more" else 1
        eligible = [p for p in front["points"] if p["meets"] != "No"]
        for point in eligible:
            is_dominated = any(
                q["x"] <= point["x"]
                and sign * q["y"]["value"] <= sign * point["y"]["value"]
                and (q["x"], q["y"]["value"]) != (point["x"], point["y"]["value"])
                for q in eligible
            )
            assert point["front"] is not is_dominated


def test_best_so_far_never_falls(report: Object):
    best = [step["best"] for step in report["steps"] if step["best"] is not None]
    assert best == sorted(best)
    assert max(row["objective"]["value"] for row in report["trials"] if row["meets"] == "Yes") == best[-1]


def test_expected_regret_is_a_share_and_known_at_the_end(report: Object):
    regrets = [step["expectedRegret"] for step in report["steps"] if step["expectedRegret"] is not None]
    assert report["steps"][-1]["expectedRegret"] is not None
    assert all(0 <= regret <= 1 for regret in regrets)


def test_surfaces_show_every_pair_through_the_recommended_spec(report: Object):
    model = report["model"]
    assert model["around"] == report["answer"]["choice"]["spec"]
    assert len({frozenset((s["x"], s["y"])) for s in model["surfaces"]}) == len(model["surfaces"]) == 6
    assert sum(share["share"] for share in model["shares"]) <= 1 + 1e-9


def test_an_impossible_answer_has_the_nearest_spec_and_the_least_bound_that_can_be_met():
    experiment, trials = measured_experiments.story(count=6, bound=0.001)
    report = content.of(experiment, trials, NOW, DEFAULTS)
    answer = report["answer"]
    assert answer["kind"] == "Impossible"
    assert answer["choice"] is None
    obstacle = answer["obstacle"]
    lowest = min(
        latency["value"]
        for row in report["trials"]
        if row["result"]
        for latency in row["result"]["latencies"]
        if latency["percentile"] == 99
    )
    assert obstacle["constraint"] == 0
    assert obstacle["nearest"]["checks"][0]["measured"]["value"] == pytest.approx(lowest)
    assert [reach["value"] for reach in obstacle["reach"]] == [pytest.approx(lowest)]


def test_answer_is_nothing_ran_when_every_trial_ran_out_of_memory():
    trials = [
        measured_experiments.trial(
            1, {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"}
        )
    ]
    assert trials[0]["status"]["reason"] == "OutOfMemory"
    report = content.of(measured_experiments.finished(trials, None), trials, NOW, DEFAULTS)
    assert report["answer"]["kind"] == "NothingRan"
    assert report["model"] is None


def test_an_experiment_without_trials_is_unfinished():
    report = content.of(measured_experiments.experiment({"phase": "Running"}), [], NOW, DEFAULTS)
    assert report["answer"]["kind"] == "Unfinished"
    assert [caution["code"] for caution in report["cautions"]] == ["Unfinished"]
    assert report["trials"] == report["fronts"] == report["steps"] == []


def test_an_invalid_space_is_refused_by_its_field():
    empty = {
        "tunableParameters": [{"category": "resource", "parameters": [{"name": "cpu", "feasibleSpace": {}}]}]
    }
    with pytest.raises(SpaceInvalid, match=r"spec\.tunableParameters\[0\]"):
        content.of(measured_experiments.experiment(**empty), [], NOW, DEFAULTS)


def test_a_current_spec_outside_the_space_is_compared():
    experiment, trials = measured_experiments.story(count=6)
    today = trials[0]
    today["spec"]["settings"] = [s for s in today["spec"]["settings"] if s["name"] != "cpu"]
    report = content.of(experiment, trials, NOW, DEFAULTS)
    assert report["answer"]["current"]["spec"] is None
    assert report["answer"]["againstCurrent"] is not None
    assert "OutsideMeasured" in [caution["code"] for caution in report["cautions"]]


def test_each_note_is_one_caution_with_all_its_trials():
    experiment, trials = measured_experiments.story(count=4)
    for trial in trials:
        trial["status"]["notes"] = ["GeneratorLimited", "LimitNotEnforced: gpu.cores"]
    report = content.of(experiment, trials, NOW, DEFAULTS)
    noted = {c["code"]: c for c in report["cautions"]}
    assert len(noted["GeneratorLimited"]["trials"]) == len(trials)
    assert noted["LimitNotEnforced"]["detail"] == "gpu.cores"


def test_notes_that_differ_only_in_their_numbers_are_one_caution():
    experiment, trials = measured_experiments.story(count=4)
    for number, trial in enumerate(trials):
        trial["status"]["notes"] = [f"MachineBusy: others used {number} cores", "FewerCores: 1 of 2"]
    cautions = content.of(experiment, trials, NOW, DEFAULTS)["cautions"]
    (fewer, busy) = [caution for caution in cautions if caution["code"] == "Note"]
    assert busy["detail"] == "MachineBusy: others used 0 cores (and the like)"
    assert fewer["detail"] == "FewerCores: 1 of 2"
    assert len(busy["trials"]) == len(fewer["trials"]) == len(trials)


def test_courses_are_the_curves_of_the_trials_of_the_answer(report):
    answer, courses = report["answer"], report["courses"]
    named = [answer[key]["trials"] for key in ("current", "runnerUp", "choice")]
    assert len(courses) == 3
    assert all(course["trial"] in trials for course, trials in zip(courses, named, strict=True))
    for course in courses:
        row = next(row for row in report["trials"] if row["name"] == course["trial"])
        levels = [point["level"] for point in course["points"]]
        assert levels == sorted(levels)
        assert levels[0] == min(window["level"] for window in row["windows"])
        assert levels[-1] <= max(window["level"] for window in row["windows"])


def test_trials_of_an_earlier_model_are_shown_but_not_compared():
    experiment, trials = measured_experiments.story()

    def with_digest(trial: Object, digest: str) -> Object:
        return {**trial, "spec": {**trial["spec"], "modelDigest": digest}}

    old = [with_digest(trial, "sha256:old") for trial in trials[:4]]
    new = [with_digest(trial, "sha256:new") for trial in trials[4:]]
    changed = content.of(experiment, [*old, *new], NOW, DEFAULTS)
    alone = content.of(experiment, new, NOW, DEFAULTS)
    assert [row["number"] for row in changed["trials"]] == [trial["spec"]["number"] for trial in trials]
    assert all(row["objective"] is None for row in changed["trials"][:4])
    (caution,) = [caution for caution in changed["cautions"] if caution["code"] == "ModelChanged"]
    assert caution["trials"] == [trial["metadata"]["name"] for trial in old]
    for part in ("answer", "prices", "bounds", "fronts", "model", "steps"):
        assert changed[part] == alone[part]


def test_the_timeout_of_requests_changes_only_the_bounds_of_the_report(report: Object) -> None:
    settings = replace(DEFAULTS, load=replace(DEFAULTS.load, request_timeout=0.01))
    changed = content.of(*measured_experiments.story(), NOW, settings)
    assert {part for part in report if report[part] != changed[part]} == {"bounds"}


@pytest.mark.parametrize(
    ("module", "name", "value", "parts"),
    [
        (load_model, "PRIOR", replace(load_model.PRIOR, reach=0.1), {"bounds", "courses"}),
        (ranking, "SAFETY_QUANTILE", 9.0, {"cautions", "steps"}),
    ],
    ids=["reach of the curves", "safety quantile"],
)
def test_a_constant_changes_only_the_parts_of_the_report_that_depend_on_it(
    report: Object,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
    value: object,
    parts: set[str],
) -> None:
    monkeypatch.setattr(module, name, value)
    changed = content.of(*measured_experiments.story(), NOW, DEFAULTS)
    assert {part for part in report if report[part] != changed[part]} == parts
