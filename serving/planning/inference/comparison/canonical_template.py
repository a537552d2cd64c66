"""A Pod template in a canonical form for comparisons: two notations of one template become equal.

The API server stores quantities in its canonical form (`0.5` as `500m`), and leaves out fields without a
pointer whose value is empty (`omitempty`). https://github.com/kubernetes/api/blob/master/core/v1/types.go
It rounds amounts of resources up to thousandths (`SetDefaults_ResourceList` in k8s.io/kubernetes,
pkg/apis/core/v1/defaults.go).
"""

import math
from decimal import Decimal
from typing import Any

from serving.objects import Object
from serving.resources.formats import quantity

_QUANTITY_MAPS = frozenset({"requests", "limits"})
_QUANTITIES = frozenset({"sizeLimit", "divisor"})
_TEXT_MAPS = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Maps of text, in which the API server stores empty values too. It leaves out an empty map."""
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
"""Numbers and booleans that are no pointers in Go: the API server leaves out 0 and false. In other fields,
such as `allowPrivilegeEscalation`, 0 or false differs from an absent field."""
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
"""Fields that the API server sets to a default if they are empty."""


def canonical(template: Object) -> Object:
    """Return the template with quantities as numbers, for `drift.covers` of a stored and a desired template.

    An empty field is None, which only an absent or empty stored field covers. An empty field that gets a
    default is left out, as the default may be any value.
    """
    result: Object = _canonical(template, "")
    return result


def _canonical(value: Any, field: str) -> Any:
    """Return a value within the template; `field` is its key, empty for the template and items of lists."""
    if isinstance(value, dict):
        if field in _TEXT_MAPS:
            return value
        if field in _QUANTITY_MAPS:
            return {name: _thousandths(amount) for name, amount in value.items()}
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
    if isinstance(value, dict):  # another empty one, such as `emptyDir: {}`, differs from an absent field
        return field in _QUANTITY_MAPS | _TEXT_MAPS and not value
    if isinstance(value, (bool, int)):
        return field in _ZERO_IS_ABSENT and not value
    return value is None or value in ("", [])


def _thousandths(value: Any) -> int | Any:
    """Return an amount of a resource in thousandths, and a value that is no quantity unchanged."""
    amount = _amount(value)
    return math.ceil(amount * 1000) if isinstance(amount, Decimal) else amount


def _amount(value: Any) -> Decimal | Any:
    """Return a quantity as a number, and a value that is no quantity unchanged."""
    try:
        return quantity.parse(value)
    except ValueError:
        return value
