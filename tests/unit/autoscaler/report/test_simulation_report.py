"""The report of a simulation: its numbers, its sentences, and its page."""

import json
from dataclasses import replace

import pytest

from autoscaler.report import page, plots, schema, sentences
from autoscaler.report.schema import PolicyRow, SimulationReport
from tests.objects import simulations
from tests.objects.html_pages import HtmlPage

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "{{ 7*7 }}",
    "\"'><svg onload=alert(1)>",
)


@pytest.fixture(scope="module")
def report() -> SimulationReport:
    return simulations.report()


@pytest.fixture(scope="module")
def html(report: SimulationReport) -> HtmlPage:
    return HtmlPage(page.render(report))


def row(report: SimulationReport, name: str, violations: float, hours: float) -> PolicyRow:
    return replace(report.row("hpa"), name=name, violations=violations, replica_hours=hours)


def headline(report: SimulationReport, *rows: PolicyRow) -> list[str]:
    mine = replace(report.row("slipway"), violations=1.0, replica_hours=10.0)
    words = sentences.of(replace(report, rows=(report.row("perfect knowledge"), mine, *rows)))
    return [sentence.replace("\u00a0", " ") for sentence in words["compared"]]


def test_first_row_is_perfect_knowledge_without_violations(report: SimulationReport) -> None:
    assert report.rows[0].name == "perfect knowledge"
    assert (report.rows[0].violations, report.rows[0].over_oracle) == (0, 1)
    assert {row.name for row in report.rows[1:]} == {"slipway", "slipway risk=5", "hpa", "static"}


def test_policy_is_pareto_optimal_when_no_other_dominates_it(report: SimulationReport) -> None:
    policies = report.rows[1:]
    front = [policy for policy in policies if policy.is_pareto_optimal]
    assert front
    for policy in policies:
        beaten = any(
            other.violations <= policy.violations
            and other.replica_hours <= policy.replica_hours
            and (other.violations, other.replica_hours) != (policy.violations, policy.replica_hours)
            for other in policies
        )
        assert policy.is_pareto_optimal is not beaten


def test_sentences_have_the_seconds_of_a_start_when_they_have_an_exponent(report: SimulationReport) -> None:
    def replica(startup: str) -> str:
        service = replace(report.service, startup=startup)
        return sentences.of(replace(report, service=service))["service"][1]

    assert replica("1e2") == replica("100")
    assert "fleet" not in replica("1e2")
    assert "as long as on a production fleet" in replica("fleet")


def test_sentences_name_the_cheapest_policy_of_equal_safety(report: SimulationReport) -> None:
    safe = [row(report, "a", 0.5, 15), row(report, "b", 1.0, 12), row(report, "c", 2.0, 11)]
    assert (
        headline(report, *safe)[0]
        == "Of those with no more violations, the cheapest is b: it costs 20 % more."
    )


def test_sentences_name_the_safest_policy_of_equal_cost(report: SimulationReport) -> None:
    cheap = [row(report, "a", 4.0, 9), row(report, "b", 3.0, 9.5), row(report, "c", 0.0, 11)]
    assert (
        headline(report, *cheap)[1]
        == "Of those that cost no more, b has the fewest violations: 3 %, against 1 %."
    )


def test_sentences_name_the_dominating_policies(report: SimulationReport) -> None:
    none = "No other policy has both fewer violations and a lower cost than slipway."
    assert (
        headline(report, row(report, "a", 0.5, 9))[2]
        == "a has both fewer violations and a lower cost than slipway."
    )
    for hours in (11, 9.96):  # the second one is as close as two runs of one policy
        assert headline(report, row(report, "a", 0.5, hours))[2] == none


def test_sentences_compare_nothing_without_a_baseline(report: SimulationReport) -> None:
    assert headline(report) == []


def test_page_has_the_json_of_the_file_beside_it(report: SimulationReport, html: HtmlPage) -> None:
    data = html.of("script", id="report")[0]
    assert json.loads("".join(data.pieces)) == json.loads(json.dumps(schema.as_json(report)))


def test_json_has_a_list_for_each_field_of_a_timeline(report: SimulationReport) -> None:
    data = schema.as_json(report)
    lengths = {len(values) for timeline in data["tracks"] for values in timeline["columns"].values()}
    assert lengths == {len(report.moments)}
    assert {len(values) for values in data["moments"].values()} == lengths


def test_each_decision_has_its_reason_as_a_tooltip(report: SimulationReport, html: HtmlPage) -> None:
    hits = html.of("rect", class_="hit")
    tips = [hit.attributes["data-tip"] for hit in hits]
    assert len(tips) == 3 * len(report.moments)  # the load, and ours at two risks
    column = report.tracks[0].columns[-1]
    assert tips[len(report.moments) - 1].endswith(f"{column.reason}: {column.message}")


def test_last_column_of_each_count_ends_where_its_tooltip_ends(report: SimulationReport) -> None:
    drawing = HtmlPage(str(plots.replicas(report, report.tracks[0]).pictures[0]))
    hit = drawing.of("rect", class_="hit")[-1].attributes
    end = float(hit["x"]) + float(hit["width"])
    counts = [*drawing.of("polygon", class_="needed"), *drawing.of("polyline")]
    assert len(counts) == 3
    for count in counts:
        corners = [tuple(map(float, corner.split(","))) for corner in count.attributes["points"].split()]
        assert max(x for x, _ in corners) == pytest.approx(end, abs=0.1)


def test_tables_have_every_policy_and_every_change(report: SimulationReport, html: HtmlPage) -> None:
    policies = html.of("table", id="policies")[0].text
    assert all(row.name in policies for row in report.rows)
    body = [
        e
        for e in html.of("tr")
        if e.parent and e.parent.parent and e.parent.parent.attributes.get("id") == "change-table"
    ]
    assert len(body) == len(report.changes) + 1  # and the header


def test_page_makes_no_requests(html: HtmlPage) -> None:
    for tag, attribute in (("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")):
        assert all(e.attributes.get(attribute, "data:,") == "data:," for e in html.of(tag))
    policy = next(e for e in html.of("meta") if "http-equiv" in e.attributes)
    assert policy.attributes["content"].startswith("default-src 'none'")


@pytest.mark.parametrize("name", HOSTILE)
def test_foreign_text_is_escaped(report: SimulationReport, name: str) -> None:
    column = replace(report.tracks[0].columns[0], message=name)
    tracks = (replace(report.tracks[0], columns=(column, *report.tracks[0].columns[1:])), *report.tracks[1:])
    hostile = replace(report, name=name, tracks=tracks, changes=(replace(report.changes[0], message=name),))
    shown = HtmlPage(page.render(hostile))
    assert len(shown.of("script")) == 2
    assert not [e for e in shown.elements if any(key.startswith("on") for key in e.attributes)]
    assert name in shown.of("title")[0].text or name.split(maxsplit=1)[0] in shown.of("title")[0].text


def test_constant_count_has_a_page(report: SimulationReport) -> None:
    assert "The count never changed." in page.render(replace(report, changes=()))


def test_forecast_is_drawn_from_its_first_value(report: SimulationReport) -> None:
    column = replace(report.tracks[0].columns[0], lower=None, median=None, upper=None)
    late = (*(column for _ in range(10)), *report.tracks[0].columns[10:])
    plot = plots.load(replace(report, tracks=(replace(report.tracks[0], columns=late),)))
    assert str(plot.pictures[0]).count('class="range"') == 1
