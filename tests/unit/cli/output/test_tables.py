from serving.cli.output import tables


def test_columns_are_left_aligned_and_unknown_values_are_na() -> None:
    assert (
        tables.text(["Name", "Ready"], [["digits", None], ["x", "True"]])
        == "NAME    READY\ndigits  N/A\nx       True"
    )


def test_columns_of_low_priority_are_shown_only_when_wide() -> None:
    table = {
        "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Image", "priority": 1}],
        "rows": [{"cells": ["a", "i"], "object": {"metadata": {"namespace": "team"}}}],
    }
    assert tables.of_server(table, wide=False, namespaced=False) == (["Name"], [["a"]])
    assert tables.of_server(table, wide=True, namespaced=True) == (
        ["Namespace", "Name", "Image"],
        [["team", "a", "i"]],
    )


def test_the_overview_has_a_row_per_arm_even_before_any_status() -> None:
    spec = {
        "predictors": [
            {"name": "a", "modelVersion": "v1"},
            {"name": "b", "modelVersion": "v2", "trafficWeight": 3},
        ]
    }
    headers, rows = tables.overview([{"metadata": {"name": "digits"}, "spec": spec}], namespaced=False)
    assert [dict(zip(headers, row, strict=True))["Arm"] for row in rows] == ["a", "b"]
    assert [dict(zip(headers, row, strict=True))["Weight"] for row in rows] == [1, 3]


def test_a_cell_has_escapes_for_what_a_terminal_would_obey() -> None:
    printed = tables.text(["Name"], [["a\nb\x1b[31mred"], ["caf\xe9 \u6f22"], ["\x9b31m\u202e"]])
    assert printed.splitlines() == ["NAME", r"a\nb\x1b[31mred", "caf\xe9 \u6f22", r"\x9b31m\u202e"]
