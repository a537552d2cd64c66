"""The report's numbers, against the trials that they are from."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from serving.errors import SpaceInvalid
from serving.objects import Object
from serving.resources.experiment import Constraint
from serving.resources.load import Load
from serving.resources.trial import Window
from tests.objects import measured_experiments as made
from tests.unit.tuner.report.conftest import NOW
from tuner.load.level_search import results
from tuner.report import content
from tuner.report.schema import Report
from tuner.settings import DEFAULTS

SCHEMA = Path(__file__).parents[3] / "golden" / "report.schema.json"


def test_report_is_of_its_schema_and_survives_json(report: Object):
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again == report
    jsonschema.validate(again, json.loads(SCHEMA.read_text()))


def test_schema_is_the_one_that_was_agreed():
    """A change of it is a change of the report's version, unless it only adds."""
    assert Report.model_json_schema(by_alias=True) == json.loads(SCHEMA.read_text())


def test_the_same_objects_give_the_same_report_whatever_their_order():
    experiment, trials = made.story(count=4)
    one, other = (
        content.of(experiment, trials, NOW, DEFAULTS),
        content.of(experiment, trials[::-1], NOW, DEFAULTS),
    )
    assert one == other


def test_every_trial_is_there_with_its_windows_and_why_it_ended(report: Object):
    _, trials = made.story()
    assert [row["name"] for row in report["trials"]] == [trial["metadata"]["name"] for trial in trials]
    for row, trial in zip(report["trials"], trials, strict=True):
        assert row["reason"] == trial["status"]["reason"]
        assert len(row["windows"]) == len(trial["status"].get("windows", []))


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


def test_saving_is_the_ratio_of_what_was_measured(report: Object):
    answer = report["answer"]
    ratio = answer["choice"]["objective"]["value"] / answer["current"]["objective"]["value"]
    factor = answer["againstCurrent"]["factor"]
    assert factor["value"] == pytest.approx(ratio)
    assert factor["low"] < factor["value"] < factor["high"]
    assert answer["againstCurrent"]["verdict"] == ("Better" if factor["low"] > 1 else "Unclear")


def test_prices_at_which_the_answer_changes_are_where_both_specs_cost_the_same(report: Object):
    """Against working out every trial's cost anew at that price."""
    rows = by_name(report)
    sizes = {name: {s["name"]: s["value"] for s in row["settings"]} for name, row in rows.items()}
    for change in report["prices"]:
        today = {**report["question"]["prices"]}

        def cost(name: str, price: float, change: Object = change, today: Object = today) -> float:
            prices = {**today, change["price"]: price}
            hour = (
                made.CORES[sizes[name]["cpu"]] * prices["cpu"]
                + made.GIB[sizes[name]["memory"]] * prices["memory"]
            )
            done = [
                row["result"]["throughput"]["value"]
                for row in rows.values()
                if row["spec"] == rows[name]["spec"] and row["reason"] == "Measured"
            ]
            return hour / math.prod(done) ** (1 / len(done))

        assert len(change["segments"]) > 1
        for before, after in zip(change["segments"], change["segments"][1:], strict=False):
            turn = after["start"]
            assert before["end"] == turn
            assert cost(before["trial"], turn) == pytest.approx(cost(after["trial"], turn))
            assert cost(before["trial"], turn * 0.99) < cost(after["trial"], turn * 0.99)
            assert cost(before["trial"], turn * 1.01) > cost(after["trial"], turn * 1.01)
        for segment in change["segments"]:
            chosen = report["answer"]["choice"]["trials"][-1]
            ratio = cost(chosen, segment["at"]) / cost(segment["trial"], segment["at"])
            assert segment["factor"] == pytest.approx(ratio)


def reached(row: Object, bound: float) -> list[tuple[float, float]]:
    """Return of each load of a trial the bound that it needs, and what it gives; its result needs no more than was allowed."""
    windows = [Window.model_validate(one) for one in row["windows"]]
    limit = Constraint(metric="latency", percentile=99, at_most=f"{1000 * bound:g}ms")
    loads = results.load_points(results.state_of(Load(), [limit], windows, DEFAULTS.load), every=False)
    found = [(one.needs[0], one.window.throughput.value) for one in loads]
    return [*found, (bound, row["result"]["throughput"]["value"])]


def test_bounds_at_which_the_answer_changes_are_those_at_which_another_spec_does_more(report: Object):
    """Against choosing anew, at each bound that a load of a trial needs."""
    (change,) = report["bounds"]
    specs: dict[int, list[tuple[float, list[tuple[float, float]]]]] = {}
    for row in report["trials"]:
        if row["reason"] == "Measured":
            specs.setdefault(row["spec"], []).append((row["costPerHour"], reached(row, change["today"])))

    def worth(spec: int, bound: float) -> float:
        done = [
            max((gives for needs, gives in loads if needs <= bound), default=0.0) / cost
            for cost, loads in specs[spec]
        ]
        return math.prod(done) ** (1 / len(done))

    ours = report["answer"]["choice"]["spec"]
    field = [
        spec for spec in specs if spec == ours or worth(spec, change["today"]) <= worth(ours, change["today"])
    ]
    names = {row["name"]: row["spec"] for row in report["trials"]}
    needed = sorted({needs for rows in specs.values() for _, loads in rows for needs, _ in loads})
    assert len(change["segments"]) > 2
    for bound in needed:
        (segment,) = [
            s for s in change["segments"] if s["start"] <= bound and (s["end"] is None or bound < s["end"])
        ]
        best = max(worth(spec, bound) for spec in field)
        assert worth(names[segment["trial"]], bound) == pytest.approx(best) if segment["trial"] else best == 0
        if segment["factor"] is not None:
            at = segment["at"]
            assert segment["factor"] == pytest.approx(worth(names[segment["trial"]], at) / worth(ours, at))


def test_points_on_a_front_are_beaten_by_no_other(report: Object):
    assert [front["measure"] for front in report["fronts"]] == ["throughput", "latency"]
    for front in report["fronts"]:
        sign = -1 if front["better"] == "more" else 1
        able = [p for p in front["points"] if p["meets"] != "No"]
        for point in able:
            beaten = any(
                q["x"] <= point["x"]
                and sign * q["y"]["value"] <= sign * point["y"]["value"]
                and (q["x"], q["y"]["value"]) != (point["x"], point["y"]["value"])
                for q in able
            )
            assert point["front"] is not beaten


def test_the_best_so_far_never_falls(report: Object):
    best = [step["best"] for step in report["steps"] if step["best"] is not None]
    assert best == sorted(best)
    assert max(row["objective"]["value"] for row in report["trials"] if row["meets"] == "Yes") == best[-1]


def test_what_was_to_be_missed_is_said_of_the_end_and_is_a_share(report: Object):
    found = [step["expectedRegret"] for step in report["steps"] if step["expectedRegret"] is not None]
    assert report["steps"][-1]["expectedRegret"] is not None
    assert all(0 <= regret <= 1 for regret in found)


def test_surfaces_show_every_pair_around_the_recommended_spec(report: Object):
    model = report["model"]
    assert model["around"] == report["answer"]["choice"]["spec"]
    assert len({frozenset((s["x"], s["y"])) for s in model["surfaces"]}) == len(model["surfaces"]) == 6
    assert sum(share["share"] for share in model["shares"]) <= 1 + 1e-9


def test_an_impossible_bound_names_the_nearest_and_what_could_have_been_met():
    experiment, trials = made.story(count=6, bound=0.001)
    found = content.of(experiment, trials, NOW, DEFAULTS)
    answer = found["answer"]
    assert answer["kind"] == "Impossible"
    assert answer["choice"] is None
    obstacle = answer["obstacle"]
    lowest = min(
        latency["value"]
        for row in found["trials"]
        if row["result"]
        for latency in row["result"]["latencies"]
        if latency["percentile"] == 99
    )
    assert obstacle["constraint"] == 0
    assert obstacle["nearest"]["checks"][0]["measured"]["value"] == pytest.approx(lowest)
    assert [reach["value"] for reach in obstacle["reach"]] == [pytest.approx(lowest)]


def test_nothing_that_ran_is_said_to_be_so():
    trials = [made.trial(1, {"cpu": "1", "memory": "256Mi", "batchSize": "16", "OMP_NUM_THREADS": "1"})]
    assert trials[0]["status"]["reason"] == "OutOfMemory"
    found = content.of(made.finished(trials, None), trials, NOW, DEFAULTS)
    assert found["answer"]["kind"] == "NothingRan"
    assert found["model"] is None


def test_an_experiment_without_trials_is_unfinished():
    found = content.of(made.experiment({"phase": "Running"}), [], NOW, DEFAULTS)
    assert found["answer"]["kind"] == "Unfinished"
    assert [caution["code"] for caution in found["cautions"]] == ["Unfinished"]
    assert found["trials"] == found["fronts"] == found["steps"] == []


def test_what_no_space_describes_is_refused_by_its_field():
    empty = {
        "tunableParameters": [{"category": "resource", "parameters": [{"name": "cpu", "feasibleSpace": {}}]}]
    }
    with pytest.raises(SpaceInvalid, match=r"spec\.tunableParameters\[0\]"):
        content.of(made.experiment(**empty), [], NOW, DEFAULTS)


def test_a_spec_of_today_beside_the_space_is_compared_all_the_same():
    experiment, trials = made.story(count=6)
    today = trials[0]
    today["spec"]["settings"] = [s for s in today["spec"]["settings"] if s["name"] != "cpu"]
    found = content.of(experiment, trials, NOW, DEFAULTS)
    assert found["answer"]["current"]["spec"] is None
    assert found["answer"]["againstCurrent"] is not None
    assert "OutsideMeasured" in [caution["code"] for caution in found["cautions"]]


def test_notes_of_trials_are_cautions_once_with_all_their_trials():
    experiment, trials = made.story(count=4)
    for trial in trials:
        trial["status"]["notes"] = ["GeneratorLimited", "LimitNotEnforced: gpu.cores"]
    found = content.of(experiment, trials, NOW, DEFAULTS)
    noted = {c["code"]: c for c in found["cautions"]}
    assert len(noted["GeneratorLimited"]["trials"]) == len(trials)
    assert noted["LimitNotEnforced"]["detail"] == "gpu.cores"


def test_notes_of_a_kind_with_other_numbers_each_time_are_one_caution():
    experiment, trials = made.story(count=4)
    for number, trial in enumerate(trials):
        trial["status"]["notes"] = [f"MachineBusy: others used {number} cores", "FewerCores: 1 of 2"]
    (fewer, busy) = [
        c for c in content.of(experiment, trials, NOW, DEFAULTS)["cautions"] if c["code"] == "Note"
    ]
    assert busy["detail"] == "MachineBusy: others used 0 cores (and the like)"
    assert fewer["detail"] == "FewerCores: 1 of 2"
    assert len(busy["trials"]) == len(fewer["trials"]) == len(trials)


def test_courses_are_the_curves_of_the_trials_that_the_answer_names(report):
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


def test_trials_of_another_model_than_the_newest_are_shown_and_not_compared():
    experiment, trials = made.story()
    before = [{**one, "spec": {**one["spec"], "modelDigest": "sha256:old"}} for one in trials[:4]]
    now = [{**one, "spec": {**one["spec"], "modelDigest": "sha256:new"}} for one in trials[4:]]
    changed = content.of(experiment, [*before, *now], NOW, DEFAULTS)
    alone = content.of(experiment, now, NOW, DEFAULTS)
    assert [row["number"] for row in changed["trials"]] == [one["spec"]["number"] for one in trials]
    assert all(row["objective"] is None for row in changed["trials"][:4])
    (caution,) = [one for one in changed["cautions"] if one["code"] == "ModelChanged"]
    assert caution["trials"] == [one["metadata"]["name"] for one in before]
    for part in ("answer", "prices", "bounds", "fronts", "model", "steps"):
        assert changed[part] == alone[part]


@pytest.mark.parametrize(
    ("section", "name", "value", "parts"),
    [
        ("load", "request_timeout", 0.01, {"bounds"}),
        ("load", "reach", 0.1, {"bounds", "courses"}),
        ("search", "safety_quantile", 9.0, {"cautions", "steps"}),
    ],
)
def test_a_report_reads_trials_with_the_settings_they_were_measured_with(
    report: Object, section: str, name: str, value: float, parts: set[str]
) -> None:
    settings = replace(DEFAULTS, **{section: replace(getattr(DEFAULTS, section), **{name: value})})
    other = content.of(*made.story(), NOW, settings)
    assert {part for part in report if report[part] != other[part]} == parts
