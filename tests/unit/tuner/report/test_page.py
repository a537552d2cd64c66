"""The page: nothing but itself, everything of the report, and nothing of what the report's texts would like to be."""

import base64
import copy
import hashlib
import itertools
import json
import re
from typing import Any

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.objects import Object
from tests.objects import measured_experiments
from tests.objects.html_pages import Page
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.settings import DEFAULTS

HOSTILE = (
    "<script>alert(1)</script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '" onload="alert(1)',
    "' onmouseover='alert(1)", "</style><svg onload=alert(1)>", "</title><b>", "<!--", "-->", "]]>", "{{ 7*7 }}", "{% raw %}",
    "javascript:alert(1)", "&lt;script&gt;", "\u2028\u2029", "\x00\x07", "</svg></td></table>", "<!--<script>",
)  # fmt: skip


@pytest.fixture(scope="module")
def rendered(report: Object) -> Page:
    return Page(page.render(report))


def test_page_asks_for_nothing_from_elsewhere(rendered: Page, report: Object):
    for element in rendered.elements:
        for name in ("src", "href", "srcset", "action", "poster", "data", "xlink:href"):
            value = element.attributes.get(name, "#")
            assert value.startswith("#") or value == "data:,", (element.tag, name, value)
        assert "style" not in element.attributes
        assert not [name for name in element.attributes if name.startswith("on")]
    assert not re.search(r"@import|url\((?!#)|https?://", page.render(report))


def test_policy_of_the_page_allows_its_own_script_and_style_only(rendered: Page):
    (policy,) = [e.attributes["content"] for e in rendered.of("meta") if "http-equiv" in e.attributes]
    (style,) = rendered.of("style")
    script = rendered.of("script")[-1]
    for kind, element in (("style-src", style), ("script-src", script)):
        digest = hashlib.sha256("".join(element.pieces).encode()).digest()
        assert f"{kind} 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy


def test_page_holds_its_report_as_json(rendered: Page, report: Object):
    (data,) = rendered.of("script", id="report")
    assert json.loads("".join(data.pieces)) == report


def test_page_says_every_sentence_of_the_report(rendered: Page, report: Object):
    (body,) = rendered.of("body")
    for section, said in sentences.of(report).items():
        for sentence in said:
            assert " ".join(sentence.split()) in body.text, section


def test_recommendation_is_read_before_any_evidence(rendered: Page, report: Object):
    order = [e for e in rendered.elements if e.tag in {"h1", "h2", "figure", "table"}]
    assert order[0].tag == "h1"
    assert order[0].text == " ".join(sentences.of(report)["headline"][0].split())
    assert next(e.text for e in order if e.tag == "h2") == "What it saves"


def test_every_picture_has_a_name_and_its_figure_a_table(rendered: Page):
    pictures = rendered.of("svg", role="img")
    figures = rendered.of("figure")
    assert pictures
    assert all(e.attributes["aria-label"] for e in pictures)
    tables = [id(ancestor(e, "figure")) for e in rendered.of("table")]
    assert all(id(figure) in tables for figure in figures)


def ancestor(element: Any, tag: str) -> Any:
    while element is not None and element.tag != tag:
        element = element.parent
    return element


def test_every_control_has_a_name(rendered: Page):
    labelled = {e.attributes["for"] for e in rendered.of("label")}
    assert labelled == {e.attributes["id"] for e in [*rendered.of("select"), *rendered.of("input")]}
    ids = [e.attributes["id"] for e in rendered.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert {
        e.attributes["aria-labelledby"] for e in rendered.of("section") if "aria-labelledby" in e.attributes
    } <= set(ids)


def test_headings_do_not_skip_a_level(rendered: Page):
    levels = [int(e.tag[1]) for e in rendered.elements if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_table_of_trials_has_a_row_for_each_with_its_numbers(rendered: Page, report: Object):
    (table,) = rendered.of("table", id="trial-table")
    rows = [e for e in rendered.of("tr") if ancestor(e, "table") is table and ancestor(e, "tbody")]
    assert len(rows) == len(report["trials"])
    for row, trial in zip(rows, report["trials"], strict=True):
        cells = [e for e in rendered.elements if e.parent is row]
        assert cells[0].text == str(trial["number"])
        assert [cell.text for cell in cells[1:5]] == [setting["value"] for setting in trial["settings"]]
        assert cells[-3].attributes["data-order"] == str(trial["costPerHour"])


def test_something_that_is_no_report_is_refused_by_field(report: Object):
    with pytest.raises(pydantic.ValidationError, match="answer"):
        page.render({**report, "answer": {"kind": "Perhaps"}})
    with pytest.raises(pydantic.ValidationError, match="version"):
        page.render({**report, "version": "slipway.dev/report/v9"})


@pytest.fixture(scope="module")
def small() -> Object:
    """A report of few trials: quick to render."""
    experiment, trials = measured_experiments.story(count=3)
    return content.of(experiment, trials[:2], NOW, DEFAULTS)


@pytest.fixture(scope="module")
def benign(small: Object) -> Page:
    return Page(page.render(small))


NASTY = st.lists(
    st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=8)), min_size=1, max_size=3
).map("".join)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NASTY)
def test_hostile_texts_are_shown_and_never_become_markup(small: Object, benign: Page, nasty: str):
    found = Page(page.render(poisoned(small, nasty)))
    assert [(e.tag, sorted(e.attributes)) for e in found.elements] == [
        (e.tag, sorted(e.attributes)) for e in benign.elements
    ]
    scripts = ["".join(e.pieces) for e in found.of("script")]
    assert scripts[-1] == "".join(benign.of("script")[-1].pieces)
    assert json.loads(scripts[0]) == poisoned(small, nasty)


def poisoned(report: Object, nasty: str) -> Object:
    """Return the report with this text wherever a user, a model or a machine may put one."""
    found = copy.deepcopy(report)
    found["name"] = found["namespace"] = found["question"]["machine"] = found["question"]["inference"] = nasty
    found["answer"]["message"] = nasty
    for axis in found["question"]["axes"]:
        axis["name"] = axis["label"] = f"{axis['name']}{nasty}"
        axis["values"] = [f"{value}{nasty}" for value in axis["values"]]
    for trial in found["trials"]:
        trial["message"] = nasty
        trial["notes"] = [f"note {nasty}" for _ in trial["notes"]]
    for settings_ in [trial["settings"] for trial in found["trials"]] + _chosen(found):
        for setting in settings_:
            setting["name"] = f"{setting['name']}{nasty}"
            setting["value"] = f"{setting['value']}{nasty}"
    return found


def _chosen(report: Object) -> list[list[Object]]:
    answer = report["answer"]
    return [answer[part]["settings"] for part in ("choice", "current", "runnerUp") if answer[part]]
