"""Rules between fields: the CEL expressions of `x-kubernetes-validations`, as a cluster evaluates them.

A rule that names `oldSelf` is a transition rule: it holds between two versions of the object, so it is not
evaluated on create (kubernetes.io, "Extend the Kubernetes API with CustomResourceDefinitions", transition
rules).
"""

import datetime as dt
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.cel_without_command_line import cel
from serving.embedded.apiserver.schema.schemas import Schema
from serving.errors import Cause

Evaluated = Literal["always", "when changed"]
"""Transition rules are evaluated at every write, other rules when their value has changed."""
_OLD_SELF = re.compile(r"\boldSelf\b")


def check(value: Any, old: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Yield the broken rules of a structurally valid value.

    Args:
        value: an object, or a part of one.
        old: the value before the write, or None.
        schema: of the value.
        path: of the value relative to the object, such as `.spec`.
    """
    for rule in schema.get("x-kubernetes-validations") or ():
        broken = _broken(rule, value, old)
        if broken:
            yield Cause(
                path.removeprefix("."),
                f"Invalid value: {_shown(value)}: {broken}",
                "FieldValueInvalid",
            )
    if isinstance(value, dict):
        for key, item in value.items():
            below = schemas.child(schema, key)
            evaluated = _evaluated(below) if below else None
            before = old.get(key) if evaluated and isinstance(old, dict) else None
            if below and evaluated and (item is not before or evaluated == "always"):
                yield from check(item, before, below, path + schemas.path_step(key))
    elif isinstance(value, list) and _evaluated(schemas.items(schema)):
        for index, item in enumerate(value):
            yield from check(item, _counterpart(item, old, schema), schemas.items(schema), f"{path}[{index}]")


def _shown(value: Any) -> str:
    """Return a scalar as JSON; of an object or a list its type, as kube-apiserver prints it."""
    if isinstance(value, dict | list):
        return '"object"' if isinstance(value, dict) else '"array"'
    return status_errors.show(value)


def _broken(rule: dict[str, str], value: Any, old: Any) -> str:
    names = {"self": value}
    if _OLD_SELF.search(rule["rule"]):
        if old is None:
            return ""
        names["oldSelf"] = old
    elif old == value:
        return ""  # the rule held then: kube-apiserver does not evaluate it again either (KEP-4008)
    message = rule.get("message") or f"failed rule: {rule['rule']}"
    try:
        return "" if _program(rule["rule"]).execute(cel.Context(names, _FUNCTIONS)) else message
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        return f"{message} (the rule could not be evaluated: {error})"


def _hours(moment: dt.datetime, zone: str = "UTC") -> int:
    """CEL's `getHours` with a time zone, which the library lacks; -1 for an unknown zone, an error in CEL."""
    try:
        return moment.astimezone(ZoneInfo(zone)).hour
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return -1


_FUNCTIONS = {"getHours": _hours}


@cache
def _program(expression: str) -> Any:
    return cel.compile(expression)


@schemas.once
def _evaluated(schema: Schema) -> Evaluated | None:
    """Return when the rules of a schema and of its parts are evaluated; None without rules."""
    rules = schema.get("x-kubernetes-validations") or ()
    below = [
        *(schema.get("properties") or {}).values(),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    parts = {_evaluated(part) for part in below if isinstance(part, dict)}
    if "always" in parts or any(_OLD_SELF.search(rule["rule"]) for rule in rules):
        return "always"
    return "when changed" if rules or "when changed" in parts else None


def _counterpart(item: Any, old: Any, schema: Schema) -> Any:
    key = schemas.key_of(item, schema)
    if key is None or not isinstance(old, list):
        return None
    return next((other for other in old if schemas.key_of(other, schema) == key), None)
