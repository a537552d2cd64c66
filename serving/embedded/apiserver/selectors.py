"""Label and field selectors as predicates over objects.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind

Predicate = Callable[[Object], bool]
_Requirement = Callable[[Mapping[str, str]], bool]
"""A predicate over an object's labels."""

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUALS = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_LABEL_VALUE = re.compile(_VALUE)


def labels(text: str) -> Predicate:
    """Return the predicate of a label selector such as `a=b,c!=d,e in (f,g),!h`.

    Raises:
        errors.ApiError: 400, the selector is malformed.
    """
    requirements = [_requirement(part.strip(), text) for part in _split(text)] if text.strip() else []

    def selected(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return selected


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside of parentheses."""
    start, inside = 0, False
    for index, char in enumerate(text):
        if char in "()":
            inside = char == "("
        elif char == "," and not inside:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _requirement(part: str, text: str) -> _Requirement:
    """Return the requirement of one part of the selector `text`."""
    if match := _SET.fullmatch(part):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if all(_LABEL_VALUE.fullmatch(value) for value in values):
            return _in(key, values) if operator == "in" else _not_in(key, values)
    elif match := _EQUALS.fullmatch(part):
        key, operator, value = match.groups()
        return _not_in(key, {value}) if operator == "!=" else _in(key, {value})
    elif match := _EXISTS.fullmatch(part):
        negated, key = match.groups()
        return (lambda labels: key not in labels) if negated else (lambda labels: key in labels)
    raise _unparsed("labelSelector", text, f"unable to parse requirement: {status_errors.show(part)}")


def _unparsed(parameter: str, text: str, problem: str) -> errors.ApiError:
    cause = status_errors.invalid(parameter, text, problem)
    return status_errors.bad_request(f"{parameter}: {cause.message}", (cause,))


def _in(key: str, values: set[str]) -> _Requirement:
    return lambda labels: key in labels and labels[key] in values


def _not_in(key: str, values: set[str]) -> _Requirement:
    return lambda labels: key not in labels or labels[key] not in values


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels match a metav1.LabelSelector (`matchLabels` and `matchExpressions`)."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(rule, labels) for rule in selector.get("matchExpressions") or ())


def _expression(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = rule["key"], set(rule.get("values") or ())
    operator = rule.get("operator")
    if operator == "In":
        return _in(key, values)(labels)
    if operator == "NotIn":
        return _not_in(key, values)(labels)
    return (key in labels) == (operator == "Exists")  # else DoesNotExist


_FIELDS_OF_ALL_KINDS = ("metadata.name", "metadata.namespace")
_FIELDS: dict[Kind, tuple[str, ...]] = {
    kinds.POD: ("status.phase", "spec.nodeName", "spec.restartPolicy", "status.podIP"),
    kinds.EVENT_V1: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    kinds.JOB: ("status.successful",),
    kinds.NAMESPACE: ("status.phase",),
    kinds.SECRET: ("type",),
}
"""Further fields of a kind that kube-apiserver selects by."""


class _Term(NamedTuple):
    """A comparison of a field with a value."""

    path: str
    equals: bool
    """Whether the field must have the value, or must not."""
    value: str


def fields(kind: Kind, text: str) -> Predicate:
    """Return the predicate of a field selector such as `metadata.name=a,status.phase!=Running`.

    Raises:
        errors.ApiError: 400, the selector is malformed, or the kind does not have the field.
    """
    known = (*_FIELDS_OF_ALL_KINDS, *_FIELDS.get(kind, ()))
    terms: list[_Term] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([A-Za-z0-9.]+)\s*(==|=|!=)\s*(.*)", part)
        if not match:
            raise _unparsed("fieldSelector", text, f"invalid selector: '{part}'; can't understand it")
        path, operator, value = match.groups()
        if path not in known:
            problem = f'"{path}" is not a known field selector: only {", ".join(known)}'
            raise _unparsed("fieldSelector", text, problem)
        terms.append(_Term(path, operator != "!=", value))
    return lambda obj: all((_field(obj, path) == value) == equals for path, equals, value in terms)


def _field(obj: Object, path: str) -> str:
    """Return the value of a selectable field, as text; empty if the object does not have it."""
    value: Any = obj
    if path == "source":
        return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")
    if path == "status.successful":
        return str((obj.get("status") or {}).get("succeeded") or 0)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)
