"""Label and field selectors as predicates over objects.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind

Predicate = Callable[[Object], bool]
_Requirement = Callable[[Mapping[str, str]], bool]

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUALS = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_LABEL_VALUE = re.compile(_VALUE)


def labels(text: str) -> Predicate:
    """Return the predicate of a label selector such as `a=b,c!=d,e in (f,g),!h`.

    Raises:
        errors.ApiError: 400, it is no selector.
    """
    requirements = [_requirement(part.strip(), text) for part in _split(text)] if text.strip() else []

    def selected(obj: Object) -> bool:
        have = obj["metadata"].get("labels") or {}
        return all(requirement(have) for requirement in requirements)

    return selected


def _split(text: str) -> Iterator[str]:
    """Yield what stands between the commas outside of parentheses."""
    start, inside = 0, False
    for index, char in enumerate(text):
        if char in "()":
            inside = char == "("
        elif char == "," and not inside:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _requirement(part: str, text: str) -> _Requirement:
    if found := _SET.fullmatch(part):
        key, operator, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        if all(_LABEL_VALUE.fullmatch(value) for value in values):
            return _in(key, values) if operator == "in" else _not_in(key, values)
    elif found := _EQUALS.fullmatch(part):
        key, operator, value = found.groups()
        return _not_in(key, {value}) if operator == "!=" else _in(key, {value})
    elif found := _EXISTS.fullmatch(part):
        negated, key = found.groups()
        return (lambda have: key not in have) if negated else (lambda have: key in have)
    raise _unparsed("labelSelector", text, f"unable to parse requirement: {status_errors.show(part)}")


def _unparsed(which: str, text: str, why: str) -> errors.ApiError:
    cause = status_errors.invalid(which, text, why)
    return status_errors.bad_request(f"{which}: {cause.message}", (cause,))


def _in(key: str, values: set[str]) -> _Requirement:
    return lambda have: key in have and have[key] in values


def _not_in(key: str, values: set[str]) -> _Requirement:
    return lambda have: key not in have or have[key] not in values


def matches(selector: Mapping[str, Any], have: Mapping[str, str]) -> bool:
    """Whether labels match a metav1.LabelSelector (`matchLabels` and `matchExpressions`)."""
    if any(have.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(rule, have) for rule in selector.get("matchExpressions") or ())


def _expression(rule: Mapping[str, Any], have: Mapping[str, str]) -> bool:
    key, values = rule["key"], set(rule.get("values") or ())
    operator = rule.get("operator")
    if operator == "In":
        return _in(key, values)(have)
    if operator == "NotIn":
        return _not_in(key, values)(have)
    return (key in have) == (operator == "Exists")


_ALWAYS = ("metadata.name", "metadata.namespace")
_FIELDS: dict[Kind, tuple[str, ...]] = {
    kinds.POD: ("status.phase", "spec.nodeName", "spec.restartPolicy", "status.podIP"),
    kinds.EVENT_V1: (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    ),
    kinds.JOB: ("status.successful",),
    kinds.NAMESPACE: ("status.phase",),
    kinds.SECRET: ("type",),
}  # fmt: skip


def fields(kind: Kind, text: str) -> Predicate:
    """Return the predicate of a field selector such as `metadata.name=a,status.phase!=Running`.

    Raises:
        errors.ApiError: 400, it is no selector, or not one of the fields that this kind has.
    """
    wanted: list[tuple[str, bool, str]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = re.fullmatch(r"([A-Za-z0-9.]+)\s*(==|=|!=)\s*(.*)", part)
        if not found:
            raise _unparsed("fieldSelector", text, f"invalid selector: '{part}'; can't understand it")
        path, operator, value = found.groups()
        if path not in (*_ALWAYS, *_FIELDS.get(kind, ())):
            known = ", ".join((*_ALWAYS, *_FIELDS.get(kind, ())))
            raise _unparsed("fieldSelector", text, f'"{path}" is not a known field selector: only {known}')
        wanted.append((path, operator != "!=", value))
    return lambda obj: all((_field(obj, path) == value) == equal for path, equal, value in wanted)


def _field(obj: Object, path: str) -> str:
    value: Any = obj
    if path == "source":
        return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")
    if path == "status.successful":
        return str((obj.get("status") or {}).get("succeeded") or 0)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)
