"""Validation of values against structural schemas: every broken rule, each with its full path.

A schema is compiled once into nested functions, which return the violations of a value with paths relative to
it. Paths and messages are made for violations only, so that the check of a valid value is fast.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from serving import clock
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema
from serving.errors import Cause
from serving.resources.formats import quantity

Mode = Literal["complete", "partial", "sent"]
"""The violations beside wrong values.

complete: a missing required member, and a list that is too short: for whole objects.
partial: a missing key of a list-map's item: for objects that defaults or an apply will complete.
sent: as partial, and values that pruning would change: nulls, unknown fields, quantities that are numbers.
"""
INT_LIMITS = {"int32": 2**31, "int64": 2**63}
"""One more than the largest integer of a format."""
_TYPES: Mapping[str, frozenset[type]] = {
    "object": frozenset({dict}),
    "array": frozenset({list}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
}

_ALL_SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None)})


class Violation(NamedTuple):
    """A broken rule at a path relative to the value that was checked, such as `.spec.ports[0]`."""

    path: str
    explain: Callable[[str], Cause]
    """Returns the cause, given the full path."""

    def cause(self) -> Cause:
        return self.explain(self.path.removeprefix("."))


class Rule(NamedTuple):
    """A rule on a scalar."""

    passes: Callable[[Any], bool]
    explain: Callable[[Any, str], Cause]
    """Returns the cause for a value at a path."""


Check = Callable[[Any], Sequence[Violation]]


class _Compiled(NamedTuple):
    """The check of a schema."""

    always_valid_type: type | None
    """The scalar type whose every value is valid, if there is one: callers skip the check of such values."""
    check: Check


def check(value: Any, schema: Schema, mode: Mode = "complete") -> Sequence[Violation]:
    """Return the violations of a value; none if it is valid."""
    return _compiled[mode](schema).check(value)


def causes(
    obj: dict[str, Any], schema: Schema, mode: Mode = "complete", *, unchanged: Container[str] = ()
) -> list[Cause]:
    """Return the broken rules of an object, except in its unchanged members, which were valid before."""
    changed = {key: value for key, value in obj.items() if key not in unchanged} if unchanged else obj
    broken = [violation.cause() for violation in check(changed, schema, mode)]
    # `changed` lacks the unchanged members: if the schema requires one, the check reports it as missing.
    return [cause for cause in broken if cause.field not in unchanged] if broken else broken


def unknown_fields(violations: Sequence[Violation]) -> list[Cause]:
    """Return the causes of the violations that are fields unknown to the schema."""
    return [violation.cause() for violation in violations if violation.explain is _unknown_field]


def _unknown_field(path: str) -> Cause:
    return Cause(path, "unknown field", "FieldValueInvalid")


def _compile(schema: Schema, mode: Mode) -> _Compiled:
    if schema.get("nullable"):
        check_not_null = _compile({**schema, "nullable": False}, mode).check
        return _Compiled(None, lambda value: () if value is None else check_not_null(value))
    types = _types(schema, mode)
    if types == _TYPES["object"]:
        return _Compiled(None, _map(schema, mode))
    if types == _TYPES["array"]:
        return _Compiled(None, _list(schema, mode))
    rules = _scalar_rules(schema, mode)
    check_scalar = _scalar(schema, types or _ALL_SCALARS, rules)
    if types is not None:
        some_type = next(iter(types))
        has_rules = some_type not in (str, bool) or bool(rules[some_type])  # an integer has its range
        return _Compiled(None if has_rules else some_type, check_scalar)
    check_map, check_list = _map(schema, mode), _list(schema, mode)

    def check_any(value: Any) -> Sequence[Violation]:
        value_type = type(value)
        if value_type is dict:
            return check_map(value)
        if value_type is list:
            return check_list(value)
        return check_scalar(value)

    return _Compiled(None, check_any)


_compiled: Mapping[Mode, Callable[[Schema], _Compiled]] = {
    mode: schemas.cached_by_schema(partial(_compile, mode=mode)) for mode in get_args(Mode)
}
"""`_compile` for each mode, with a cache."""


def _types(schema: Schema, mode: Mode) -> frozenset[type] | None:
    """Return the Python types of valid values, or None if the schema allows any."""
    if mode == "sent" and schema.get("format") == "quantity":
        return _TYPES["string"]
    if schema.get("x-kubernetes-int-or-string"):
        return frozenset({int, str})
    return _TYPES.get(schema.get("type", ""))


def _wrong_type(schema: Schema, value: Any) -> Sequence[Violation]:
    expected = "integer or string" if schema.get("x-kubernetes-int-or-string") else schema["type"]

    def explain(path: str) -> Cause:
        return status_errors.invalid(path, value, f"{path} in body must be of type {expected}")

    return (Violation("", explain),)


def _map(schema: Schema, mode: Mode) -> Check:
    required = frozenset(schema.get("required") or ()) if mode == "complete" else ()
    properties = schema.get("properties") or {}
    used_properties: dict[str, _Compiled] = {}
    other_members: list[_Compiled] = []  # the check of all members that are no properties, once it is used

    def member(key: str) -> _Compiled:
        """Compile a member's schema on first use: of most schemas, few parts are ever used."""
        if key in properties:
            used_properties[key] = _compiled[mode](properties[key])
            return used_properties[key]
        if not other_members:
            child = schemas.child({**schema, "properties": {}}, "")  # that of any key beside the properties
            other_members.append(_Compiled(None, _unknown[mode]) if child is None else _compiled[mode](child))
        return other_members[0]

    def check_map(value: Any) -> Sequence[Violation]:
        if type(value) is not dict:
            return _wrong_type(schema, value)
        violations: list[Violation] = []
        if required and not value.keys() >= required:
            absent = [name for name in schema["required"] if name not in value]
            violations += [Violation(schemas.path_step(name), status_errors.required) for name in absent]
        for key, item in value.items():
            always_valid_type, check_item = used_properties.get(key) or member(key)
            if type(item) is not always_valid_type and (broken := check_item(item)):
                violations += [
                    Violation(schemas.path_step(key) + violation.path, violation.explain)
                    for violation in broken
                ]
        return violations

    return check_map


_unknown: Mapping[Mode, Check] = {
    "complete": lambda _: (),
    "partial": lambda _: (),
    "sent": lambda _: (Violation("", _unknown_field),),
}
"""The check of a member that the schema does not know."""


def _list(schema: Schema, mode: Mode) -> Check:
    least = schema.get("minItems", 0) if mode == "complete" else 0
    most = schema.get("maxItems", math.inf)
    check_unique = _uniqueness(schema, mode)
    items: list[_Compiled] = []  # the check of the items, once it is used

    def check_list(value: Any) -> Sequence[Violation]:
        if type(value) is not list:
            return _wrong_type(schema, value)
        violations: list[Violation] = []
        if len(value) > most:
            violations.append(Violation("", lambda path: status_errors.too_many(path, len(value), most)))
        if len(value) < least:
            rule = f"in body should have at least {least} items"
            violations.append(
                Violation("", lambda path: status_errors.invalid(path, len(value), f"{path} {rule}"))
            )
        if not items:
            items.append(_compiled[mode](schemas.items(schema)))
        always_valid_type, check_item = items[0]
        for index, item in enumerate(value):
            if type(item) is not always_valid_type and (broken := check_item(item)):
                violations += [
                    Violation(f"[{index}]{violation.path}", violation.explain) for violation in broken
                ]
        return [*violations, *check_unique(value)] if check_unique is not None else violations

    return check_list


def _uniqueness(schema: Schema, mode: Mode) -> Check | None:
    """Return the check that a set's items, or the keys of a list-map's items, differ; else None."""
    if schema.get("x-kubernetes-list-type") == "set":
        return _check_set
    properties = schemas.items(schema).get("properties") or {}
    # The fields of an item's key, with their defaults.
    key_fields = [(name, (properties.get(name) or {}).get("default")) for name in schemas.map_keys(schema)]
    if not key_fields:
        return None

    def check_keys(value: list[Any]) -> Sequence[Violation]:
        violations: list[Violation] = []
        seen: set[Any] = set()
        for index, item in enumerate(value):
            if type(item) is not dict:
                continue  # a violation of the item itself
            for name, default in key_fields:
                if item.get(name, default) is None and mode != "complete":
                    violations.append(
                        Violation(f"[{index}]{schemas.path_step(name)}", status_errors.required)
                    )
            key = tuple([item.get(name, default) for name, default in key_fields])
            if not _KEY_TYPES.issuperset(map(type, key)):
                continue  # a missing field, or one of a wrong type: violations of the field
            if key in seen:
                parts = {name: part for (name, _), part in zip(key_fields, key, strict=True)}
                violations.append(Violation(f"[{index}]", partial(_duplicate, parts)))
            seen.add(key)
        return violations

    return check_keys


_KEY_TYPES = frozenset({str, int})


def _check_set(value: list[Any]) -> Sequence[Violation]:
    violations: list[Violation] = []
    seen: set[Any] = set()
    for index, item in enumerate(value):
        key = item if type(item) is str else (repr(item),)
        if key in seen:
            violations.append(Violation(f"[{index}]", partial(_duplicate, item)))
        seen.add(key)
    return violations


def _duplicate(value: Any, path: str) -> Cause:
    return status_errors.duplicate(path, value)


def _scalar(schema: Schema, types: frozenset[type], rules: Mapping[type, Sequence[Rule]]) -> Check:
    def check_scalar(value: Any) -> Sequence[Violation]:
        value_type = type(value)
        if value_type not in types:
            return _wrong_type(schema, value)
        type_rules = rules[value_type]
        for passes, _ in type_rules:
            if not passes(value):
                break
        else:
            return ()  # most values: no list is made
        return [Violation("", partial(rule.explain, value)) for rule in type_rules if not rule.passes(value)]

    return check_scalar


def _scalar_rules(schema: Schema, mode: Mode) -> Mapping[type, Sequence[Rule]]:
    """Return the rules for the scalars of each type."""
    enum, minimum, maximum = schema.get("enum"), schema.get("minimum"), schema.get("maximum")
    common: list[Rule] = []
    if enum is not None:
        common.append(
            Rule(frozenset(enum).__contains__, lambda v, path: status_errors.unsupported(path, v, enum))
        )
    numbers = list(common)
    if minimum is not None:
        rule = f"in body should be greater than or equal to {minimum}"
        numbers.append(Rule(lambda value: bool(value >= minimum), _invalid(rule)))
    if maximum is not None:
        rule = f"in body should be less than or equal to {maximum}"
        numbers.append(Rule(lambda value: bool(value <= maximum), _invalid(rule)))
    size = "int32" if schema.get("format") == "int32" else "int64"
    limit = INT_LIMITS[size]
    fits = Rule(lambda value: -limit <= value < limit, _invalid(f"in body must be an {size}"))
    nulls = [Rule(lambda _: False, _invalid("in body must not be null"))] if mode == "sent" else []
    strings = [*common, *_string_rules(schema)]
    return {str: strings, int: [*numbers, fits], float: numbers, bool: common, type(None): [*common, *nulls]}


_END = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.DOTALL)
"""An escape or a class, which is kept (the group), or a `$`, which is replaced: in RE2 it does not match
before a newline at the end."""


def _string_rules(schema: Schema) -> list[Rule]:
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    rules: list[Rule] = []
    if most is not None:
        rules.append(
            Rule(lambda value: len(value) <= most, lambda _, path: status_errors.too_long(path, most))
        )
    if least is not None:
        rule = f"in body should be at least {least} chars long"
        rules.append(Rule(lambda value: len(value) >= least, _invalid(rule)))
    if pattern is not None:
        search = re.compile(_END.sub(lambda match: match[1] or r"\Z", pattern)).search
        rules.append(
            Rule(lambda value: search(value) is not None, _invalid(f"in body should match '{pattern}'"))
        )
    if schema.get("format") in _FORMATS:
        parse, rule = _FORMATS[schema["format"]]
        rules.append(
            Rule(partial(_parses, parse), lambda value, path: status_errors.invalid(path, value, rule))
        )
    return rules


def _invalid(rule: str) -> Callable[[Any, str], Cause]:
    return lambda value, path: status_errors.invalid(path, value, f"{path} {rule}")


def _decode_base64(value: str) -> bytes:
    """Decode as Go's encoding/base64, which ignores line breaks: `base64 FILE` writes them."""
    return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)


_FORMATS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "quantity": (
        quantity.parse,
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ),
    "date-time": (clock.parse, "must be an RFC 3339 date and time"),
    "byte": (_decode_base64, "must be base64"),
}
"""String format → its parser, which raises a ValueError, and its rule in words."""


def _parses(parse: Callable[[str], object], value: str) -> bool:
    try:
        parse(value)
    except (ValueError, binascii.Error):
        return False
    return True
