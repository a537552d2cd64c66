"""The page: self-contained, complete, and safe against hostile texts in the report."""

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
from tests.objects.html_pages import HtmlPage
from tests.objects.tuning import measured_experiments
from tests.unit.tuner.report.conftest import NOW
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.settings import DEFAULTS

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "' onmouseover='alert(1)",
    "</style><svg onload=alert(1)>",
    "</title><b>",
    "<!--",
    "-->",
    "]]>",
    "{{ 7*7 }}",
    "{% raw %}",
    "javascript:alert(1)",
    "&lt;script&gt;",
    "\u2028\u2029",
    "\x00\x07",
    "</svg></td></table>",
    "<!--<script>",
)


@pytest.fixture(scope="module")
def rendered(report: Object) -> HtmlPage:
    return HtmlPage(page.render(report))


def test_page_refers_to_no_other_resource(rendered: HtmlPage, report: Object):
    for element in rendered.elements:
        for name in ("src", "href", "srcset", "action", "poster", "data", "xlink:href"):
            value = element.attributes.get(name, "#")
            assert value.startswith("#") or value == "data:,", (element.tag, name, value)
        assert "style" not in element.attributes
        assert not [name for name in element.attributes if name.startswith("on")]
    assert not re.search(r"@import|url\((?!#)|https?://", page.render(report))


def test_content_security_policy_allows_only_the_own_script_and_style(rendered: HtmlPage):
    (policy,) = [e.attributes["content"] for e in rendered.of("meta") if "http-equiv" in e.attributes]
    (style,) = rendered.of("style")
    script = rendered.of("script")[-1]
    for kind, element in (("style-src", style), ("script-src", script)):
        digest = hashlib.sha256("".join(element.pieces).encode()).digest()
        assert f"{kind} 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy


def test_page_includes_its_report_as_json(rendered: HtmlPage, report: Object):
    (data,) = rendered.of("script", id="report")
    assert json.loads("".join(data.pieces)) == report


def test_page_has_every_sentence_of_the_report(rendered: HtmlPage, report: Object):
    (body,) = rendered.of("body")
    for section, parts in sentences.of(report).items():
        for sentence in parts:
            assert " ".join(sentence.split()) in body.text, section


def test_recommendation_comes_before_any_evidence(rendered: HtmlPage, report: Object):
    order = [e for e in rendered.elements if e.tag in {"h1", "h2", "figure", "table"}]
    assert order[0].tag == "h1"
    assert order[0].text == " ".join(sentences.of(report)["headline"][0].split())
    assert next(e.text for e in order if e.tag == "h2") == "Saving"


def test_every_picture_has_a_label_and_its_figure_a_table(rendered: HtmlPage):
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


def test_every_control_has_a_label(rendered: HtmlPage):
    labelled = {e.attributes["for"] for e in rendered.of("label")}
    assert labelled == {e.attributes["id"] for e in [*rendered.of("select"), *rendered.of("input")]}
    ids = [e.attributes["id"] for e in rendered.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert {
        e.attributes["aria-labelledby"] for e in rendered.of("section") if "aria-labelledby" in e.attributes
    } <= set(ids)


def test_headings_do_not_skip_a_level(rendered: HtmlPage):
    levels = [int(e.tag[1]) for e in rendered.elements if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_table_of_trials_has_a_row_with_the_figures_of_each(rendered: HtmlPage, report: Object):
    (table,) = rendered.of("table", id="trial-table")
    rows = [e for e in rendered.of("tr") if ancestor(e, "table") is table and ancestor(e, "tbody")]
    assert len(rows) == len(report["trials"])
    for row, trial in zip(rows, report["trials"], strict=True):
        cells = [e for e in rendered.elements if e.parent is row]
        assert cells[0].text == str(trial["number"])
        assert [cell.text for cell in cells[1:5]] == [setting["value"] for setting in trial["settings"]]
        assert cells[-3].attributes["data-order"] == str(trial["costPerHour"])


def test_an_invalid_report_is_refused_by_its_field(report: Object):
    with pytest.raises(pydantic.ValidationError, match="answer"):
        page.render({**report, "answer": {"kind": "Perhaps"}})
    with pytest.raises(pydantic.ValidationError, match="version"):
        page.render({**report, "version": "slipway.dev/report/v9"})


@pytest.fixture(scope="module")
def small() -> Object:
    """A report of few trials, for quick rendering."""
    experiment, trials = measured_experiments.story(count=3)
    return content.of(experiment, trials[:2], NOW, DEFAULTS)


@pytest.fixture(scope="module")
def benign(small: Object) -> HtmlPage:
    return HtmlPage(page.render(small))


TEXTS = st.lists(
    st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=8)), min_size=1, max_size=3
).map("".join)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS)
def test_hostile_texts_are_shown_as_text_and_never_as_markup(small: Object, benign: HtmlPage, hostile: str):
    rendered_page = HtmlPage(page.render(poisoned(small, hostile)))
    assert [(e.tag, sorted(e.attributes)) for e in rendered_page.elements] == [
        (e.tag, sorted(e.attributes)) for e in benign.elements
    ]
    scripts = ["".join(e.pieces) for e in rendered_page.of("script")]
    assert scripts[-1] == "".join(benign.of("script")[-1].pieces)
    assert json.loads(scripts[0]) == poisoned(small, hostile)


def poisoned(report: Object, hostile: str) -> Object:
    """Return the report with this text in every field that a user, a model or a machine can set."""
    changed = copy.deepcopy(report)
    changed["name"] = changed["namespace"] = changed["question"]["machine"] = changed["question"][
        "inference"
    ] = hostile
    changed["answer"]["message"] = hostile
    for axis in changed["question"]["axes"]:
        axis["name"] = axis["label"] = f"{axis['name']}{hostile}"
        axis["values"] = [f"{value}{hostile}" for value in axis["values"]]
    for trial in changed["trials"]:
        trial["message"] = hostile
        trial["notes"] = [f"note {hostile}" for _ in trial["notes"]]
    for settings_ in [trial["settings"] for trial in changed["trials"]] + _chosen(changed):
        for setting in settings_:
            setting["name"] = f"{setting['name']}{hostile}"
            setting["value"] = f"{setting['value']}{hostile}"
    return changed


def _chosen(report: Object) -> list[list[Object]]:
    answer = report["answer"]
    return [answer[part]["settings"] for part in ("choice", "current", "runnerUp") if answer[part]]
