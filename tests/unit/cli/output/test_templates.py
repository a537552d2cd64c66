"""Text as Go prints it, for `-o jsonpath` and `-o custom-columns`."""

from typing import Any

import pytest

from serving.cli.output import templates
from serving.resources.formats.jsonpath import parser


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        (3, "3"),
        (90.0, "90"),
        (0.1, "0.1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-07"),
        ("a b", "a b"),
        ([1.5e-6, -1e-6, 9e-6, 1e-4, 0.0], "[0.0000015,-0.000001,0.000009,0.0001,0]"),
        ([1.5e-7, 1e-10, 1e20, 1e21], "[1.5e-7,1e-10,100000000000000000000,1e+21]"),
        ({"b": [1.0, "<x>"], "a": None}, '{"a":null,"b":[1,"\\u003cx\\u003e"]}'),
    ],
)
def test_a_value_of_a_template_is_printed_as_go_prints_it(value: Any, text: str) -> None:
    assert templates.text(parser.template("{.x}"), {"x": value}) == text


def test_several_values_of_one_path_are_separated_by_spaces() -> None:
    assert templates.text(parser.template("{.x[*]}|{.nope}|"), {"x": [1, "b"]}) == "1 b||"


def test_cells_of_columns_are_go_values_and_missing_ones_none() -> None:
    columns = templates.columns('A:.a,B:b[0,1],MAP:{.m},NONE:.x.y,F:.l[?(@.k=="a,b")].v')
    obj = {"a": 1, "b": ["x", "y"], "m": {"k": [1, "z"]}, "l": [{"k": "a,b", "v": 5}]}
    assert [column.header for column in columns] == ["A", "B", "MAP", "NONE", "F"]
    assert templates.cells(columns, obj) == ["1", "x,y", "map[k:[1 z]]", "<none>", "5"]


@pytest.mark.parametrize("spec", ["NAME", "A:.a,B", "A:{.a", "A:", "A:.a[x]"])
def test_columns_of_another_form_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"is not|must have"):
        templates.columns(spec)
