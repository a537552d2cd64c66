"""Plain text tables: left aligned, two spaces between columns, upper-case headers. Pure."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from serving.resources.traffic_split import DEFAULT_WEIGHT

UNKNOWN = "N/A"


class TextTable(NamedTuple):
    """The headers and the rows of a table; each row has one cell per header."""

    headers: list[str]
    rows: list[list[object]]


def text(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the table; empty cells read N/A."""
    lines = [[header.upper() for header in headers], *map(cells, rows)]
    column_widths = widths(lines)
    return "\n".join(line(row, column_widths) for row in lines)


def cells(row: Sequence[object]) -> list[str]:
    """Return the printed cells of a row."""
    return [UNKNOWN if value in (None, "") else printable(str(value)) for value in row]


def printable(text: str) -> str:
    """Return a line with escapes for characters that a terminal would obey, as in Python's strings."""
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines with the escapes of `printable` in each line."""
    return "\n".join(map(printable, text.split("\n")))


def _is_shown(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"  # spaces, such as U+00A0


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column in characters; there must be at least one row."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def line(row: Sequence[str], column_widths: Sequence[int]) -> str:
    """Return one line; a cell that is wider than its column moves the following cells."""
    return "  ".join(cell.ljust(width) for cell, width in zip(row, column_widths, strict=True)).rstrip()


def of_server(table: Mapping[str, Any], *, wide: bool, namespaced: bool) -> TextTable:
    """Return the content of a meta.k8s.io Table.

    Args:
        table: the API server's Table.
        wide: whether columns of a priority above 0 are shown.
        namespaced: whether the first column is the namespace.
    """
    columns = table.get("columnDefinitions") or []
    shown = [index for index, column in enumerate(columns) if wide or not column.get("priority")]
    headers = [str(columns[index]["name"]) for index in shown]
    rows: list[list[object]] = [[row["cells"][index] for index in shown] for row in table.get("rows") or []]
    if namespaced:
        headers.insert(0, "Namespace")
        for row, source in zip(rows, table.get("rows") or [], strict=True):
            row.insert(0, ((source.get("object") or {}).get("metadata") or {}).get("namespace"))
    return TextTable(headers, rows)


def overview(inferences: Iterable[Mapping[str, Any]], *, namespaced: bool) -> TextTable:
    """Return one row per arm of every Inference: version, traffic, replicas and reason.

    With `namespaced`, the first column is the namespace.
    """
    headers = ["Name", "Ready", "Arm", "Version", "Weight", "Traffic", "Replicas", "Reason", "URL"]
    rows: list[list[object]] = []
    for item in inferences:
        status = item.get("status") or {}
        ready: Mapping[str, Any] = next(
            (c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {}
        )
        arms = {p["name"]: p for p in status.get("predictors") or []}
        for spec in item["spec"]["predictors"]:
            arm = arms.get(spec["name"], {})
            percent = arm.get("trafficPercent")
            row: list[object] = [
                item["metadata"]["name"],
                ready.get("status"),
                spec["name"],
                spec["modelVersion"],
                spec.get("trafficWeight", DEFAULT_WEIGHT),
                None if percent is None else f"{percent:g}%",
                f"{arm.get('readyReplicas', 0)}/{arm.get('replicas', 0)}",
                arm.get("reason") or ready.get("reason"),
                status.get("url"),
            ]
            rows.append([item["metadata"].get("namespace"), *row] if namespaced else row)
    return TextTable(["Namespace", *headers] if namespaced else headers, rows)
