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

Evaluation = Literal["always", "when changed"]
"""When rules are evaluated: transition rules at every update, other rules when their value has changed."""
_OLD_SELF = re.compile(r"\boldSelf\b")


def check(value: Any, old: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Yield the broken rules of a structurally valid value and of its parts.

    Args:
        value: an object, or a part of one.
        old: the value before the write; None if there was none.
        schema: the schema of the value.
        path: the path of the value relative to the object, such as `.spec`.
    """
    for rule in schema.get("x-kubernetes-validations") or ():
        if message := _violation(rule, value, old):
            yield Cause(
                path.removeprefix("."),
                f"Invalid value: {_shown(value)}: {message}",
                "FieldValueInvalid",
            )
    if isinstance(value, dict):
        for key, member in value.items():
            member_schema = schemas.child(schema, key)
            evaluation = _evaluation(member_schema) if member_schema else None
            if not member_schema or evaluation is None:
                continue
            before = old.get(key) if isinstance(old, dict) else None
            # A patch shares the members that it does not change with the old object.
            if evaluation == "always" or member is not before:
                yield from check(member, before, member_schema, path + schemas.path_step(key))
    elif isinstance(value, list) and (evaluation := _evaluation(schemas.items(schema))):
        if evaluation == "when changed" and value == old:
            return
        for index, item in enumerate(value):
            yield from check(item, _old_item(item, old, schema), schemas.items(schema), f"{path}[{index}]")


def _shown(value: Any) -> str:
    """Return a scalar as JSON; of an object or a list its type, as kube-apiserver prints it."""
    if isinstance(value, dict | list):
        return '"object"' if isinstance(value, dict) else '"array"'
    return status_errors.show(value)


def _violation(rule: dict[str, str], value: Any, old: Any) -> str:
    """Return the message of a rule that a value breaks; empty if the rule holds or is not evaluated."""
    names = {"self": value}
    if _OLD_SELF.search(rule["rule"]):
        if old is None:
            return ""
        names["oldSelf"] = old
    elif old == value:
        return ""  # as kube-apiserver does not evaluate the rules of an unchanged value (KEP-4008)
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


@schemas.cached_by_schema
def _evaluation(schema: Schema) -> Evaluation | None:
    """Return when the rules of a schema and of its parts are evaluated; None without rules. Cached."""
    rules = schema.get("x-kubernetes-validations") or ()
    part_schemas = [
        *(schema.get("properties") or {}).values(),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    parts = {_evaluation(part) for part in part_schemas if isinstance(part, dict)}
    if "always" in parts or any(_OLD_SELF.search(rule["rule"]) for rule in rules):
        return "always"
    return "when changed" if rules or "when changed" in parts else None


def _old_item(item: Any, old: Any, schema: Schema) -> Any:
    """Return the item of the old list that has the key of an item; None if there is none, as in a list
    without keys.
    """
    key = schemas.key_of(item, schema)
    if not key or not isinstance(old, list):
        return None
    return next((other for other in old if schemas.key_of(other, schema) == key), None)
