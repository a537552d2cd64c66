"""A Pod template as a value that does not depend on how it was written: for comparisons alone.

The API server stores quantities in its canonical form (`0.5` as `500m`), and leaves out fields without a
pointer whose value is empty (`omitempty`). https://github.com/kubernetes/api/blob/master/core/v1/types.go
"""

from decimal import Decimal
from typing import Any

from serving.objects import Object
from serving.resources.formats import quantity

_QUANTITY_MAPS = frozenset({"requests", "limits"})
_QUANTITIES = frozenset({"sizeLimit", "divisor"})
_TEXT_MAPS = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Maps of text, in which an empty value is stored."""
_ZERO_IS_ABSENT = frozenset(
    {
        "failureThreshold",
        "hostPort",
        "initialDelaySeconds",
        "periodSeconds",
        "readOnly",
        "stdin",
        "stdinOnce",
        "successThreshold",
        "timeoutSeconds",
        "tty",
    }
)
"""Numbers and booleans without a pointer; others, such as `allowPrivilegeEscalation`, mean what they say."""
_DEFAULTED = frozenset(
    {
        "apiVersion",
        "failureThreshold",
        "imagePullPolicy",
        "limits",
        "periodSeconds",
        "protocol",
        "requests",
        "scheme",
        "successThreshold",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "timeoutSeconds",
    }
)
"""Fields that the API server sets if they are empty."""


def canonical(template: Object) -> Object:
    """Return the template with quantities as numbers, and None for fields that the API server leaves out."""
    result: Object = _canonical(template, "")
    return result


def _canonical(value: Any, field: str) -> Any:
    if isinstance(value, dict):
        if field in _TEXT_MAPS:
            return value
        if field in _QUANTITY_MAPS:
            return {name: _amount(amount) for name, amount in value.items()}
        members = {name: _canonical(member, name) for name, member in value.items()}
        return {
            name: None if _is_empty(name, member) else member
            for name, member in members.items()
            if not (name in _DEFAULTED and _is_empty(name, member))
        }
    if isinstance(value, list):
        return [_canonical(item, "") for item in value]
    return _amount(value) if field in _QUANTITIES else value


def _is_empty(field: str, value: Any) -> bool:
    if isinstance(value, dict):
        return field in _QUANTITY_MAPS and not value
    if isinstance(value, (bool, int)):
        return field in _ZERO_IS_ABSENT and not value
    return value is None or value in ("", [])


def _amount(value: Any) -> Decimal | Any:
    try:
        return quantity.parse(value)
    except ValueError:
        return value
