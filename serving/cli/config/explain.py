"""Describes each setting: type, unit, bounds, default and reason, read from the source of its dataclass."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, get_type_hints

from serving.cli.config.schema import Configuration, section_of, variable_of
from serving.units import Quantity


@dataclass(frozen=True)
class SettingDescription:
    """One setting."""

    path: str
    """Such as `gateway.port`."""
    type: str
    """`integer`, `number`, `boolean` or `string`."""
    unit: str
    """Unit of the value and its bounds; empty for text and booleans, which have no bounds."""
    least: float | None
    most: float | None
    default: Any
    reason: str
    variable: str
    """The environment variable."""


@dataclass(frozen=True)
class SectionSummary:
    """One section of the file."""

    path: str
    summary: str


_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def settings(section: type[Any] = Configuration, prefix: str = "") -> Iterator[SettingDescription]:
    """Yield every setting of a section and of the sections in it."""
    hints, reasons = get_type_hints(section, include_extras=True), _reasons(section)
    for field in fields(section):
        path = f"{prefix}{field.name}"
        if (inner := section_of(field.default_factory)) is not None:
            yield from settings(inner, f"{path}.")
            continue
        hint = hints[field.name]
        quantity = next(
            (data for data in getattr(hint, "__metadata__", ()) if isinstance(data, Quantity)), None
        )
        yield SettingDescription(
            path=path,
            type=_TYPES[getattr(hint, "__origin__", hint)],
            unit="" if quantity is None else quantity.unit,
            least=None if quantity is None else quantity.least,
            most=None if quantity is None else quantity.most,
            default=field.default,
            reason=reasons.get(field.name, ""),
            variable=variable_of(path),
        )


def sections(section: type[Any] = Configuration, prefix: str = "") -> Iterator[SectionSummary]:
    """Yield every section and its summary."""
    for field in fields(section):
        if (inner := section_of(field.default_factory)) is not None:
            path = f"{prefix}{field.name}"
            yield SectionSummary(path, (inspect.getdoc(inner) or "").split("\n")[0])
            yield from sections(inner, f"{path}.")


def _reasons(section: type[Any]) -> dict[str, str]:
    """Return the docstring below each field by name, without those of base classes."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
