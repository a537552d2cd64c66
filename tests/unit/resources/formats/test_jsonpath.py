"""JSONPaths and templates; tests/integration/cli/test_templates.py compares them with kubectl."""

import contextlib
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.resources.formats.jsonpath import evaluation, parser
from tests.rig.fuzzing import fuzzed

VALUE: dict[str, Any] = {
    "a": [{"t": "X", "v": 1}, {"t": "Y", "v": 2, "w": None}],
    "b": {"c": "d", "e.f": True},
    "n": 2.5,
}


def found(expression: str, value: Any = VALUE) -> list[Any]:
    return evaluation.find(parser.path(expression), value)


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        (".b.c", ["d"]),
        ("b.c", ["d"]),
        ("{.b.c}", ["d"]),
        ("{b.c}", ["d"]),
        (r".b.e\.f", [True]),
        (".b['c']", ["d"]),
        ('.b["e.f"]', [True]),
        (".b['c','e.f']", ["d", True]),
        (".b.*", ["d", True]),
        (".a[*].v", [1, 2]),
        (".a[-1].v", [2]),
        (".a[0,1].t", ["X", "Y"]),
        (".a[1:].v", [2]),
        (".a[:-1].v", [1]),
        (".a[0:2:2].v", [1]),
        (".a[2:2]", []),
        (".a[1].w", [None]),
        ("..v", [1, 2]),
        ("..t", ["X", "Y"]),
        ('.a[?(@.t=="Y")].v', [2]),
        (".a[?(@.t != 'Y')].v", [1]),
        (".a[?(@.v>=2)].t", ["Y"]),
        (".a[?(@.v < 1.5)].t", ["X"]),
        (".a[?(@.w)].t", ["Y"]),
        (".a[?(@.t==@.nope)].t", []),
        (".x.y", []),
        (".n.y", []),
        (".x[0]", []),
    ],
)
def test_a_path_leads_to_its_values(expression: str, values: list[Any]) -> None:
    assert found(expression) == values


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (".a[2]", "index 2 is outside of a list of 2"),
        (".a[-3]", "index -3 is outside of a list of 2"),
        (".a[0:3]", r"slice \[0:3\] is outside of a list of 2"),
        (".a[1:0]", r"slice \[1:0\] starts after its end"),
        (".a[0:2:0]", r"the step of slice \[0:2:0\] must be positive"),
        (".b[0]", "needs a list, and meets an object"),
        (".n[0]", "needs a list, and meets 2.5"),
        ('.a[?(@.v=="1")]', "cannot compare 1 with '1'"),
        (".a[?(@.*==1)]", "must compare one value"),
        (".a[?(@.w==1)]", "cannot compare null with 1"),
    ],
)
def test_a_path_that_does_not_fit_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found(expression)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.a", "not closed"),
        ("{.a[0}", r"\[ at character 3 is not closed"),
        ('{"a}', "is not closed"),
        ("{.a[x]}", r"\[x\] must have an index"),
        ("{.a[1:-]}", "must have an index"),
        ("{a.b}", "'a' is not a keyword; write a field as .a"),
        ("{..  ..a}", "must not have two .. in a row"),
        ("{range .a}x", "has no {end}"),
        ("{end}", "must end a {range}"),
        ("{.a[?(@.b=~'x')]}", "'=~' is not one of the comparisons"),
        ("{.a[?(@.b}", "does not belong there"),
        ("{#}", "'#' at character 1 does not belong there"),
        (r'{"\q"}', "is not an escape sequence"),
        ("{1.2.3}", "'1.2.3' is not a number"),
    ],
)
def test_a_template_that_cannot_be_read_is_an_error(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parser.template(template)


NAMES = st.text(string.ascii_letters + string.digits + "-_/", min_size=1, max_size=6)
TREES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def paths(value: Any, written: str = "{@") -> list[tuple[str, Any]]:
    """Return every value in a tree with a path to it."""
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            inner += paths(item, f"{written}.{key}")
            inner += paths(item, f"{written}['{key}']")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            inner += paths(item, f"{written}[{index}]")
            inner += paths(item, f"{written}[{index - len(value)}]")
    return [(written + "}", value), *inner]


@given(TREES)
@fuzzed(60)
def test_every_value_has_a_path_that_leads_to_it_alone(tree: Any) -> None:
    for written, value in paths(tree):
        assert list(evaluation.results(parser.template(written), tree)) == [[value]]


@given(st.text("{}[]()?@.,:*'\"\\ab01=<> -range", max_size=25))
@fuzzed(300)
def test_any_text_is_a_template_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        list(evaluation.results(parser.template(text), VALUE))


@given(st.text("ab c\n\t\u00e9<&", max_size=10))
@fuzzed(30)
def test_text_outside_of_braces_is_itself(text: str) -> None:
    assert [part for parts in evaluation.results(parser.template(text), VALUE) for part in parts] == [
        text
    ] * bool(text)


def test_a_range_repeats_its_body_for_each_value_and_may_be_nested() -> None:
    template = parser.template("{range .a[*]}{.t}:{range .u[*]}{@},{end};{end}")
    value = {"a": [{"t": "X", "u": [1, 2]}, {"t": "Y", "u": []}]}
    texts = [str(part) for parts in evaluation.results(template, value) for part in parts]
    assert "".join(texts) == "X:1,2,;Y:;"
