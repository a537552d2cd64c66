"""The resources that a Pod's containers request and may use. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from serving.resources.formats import quantity

Bound = Literal["requests", "limits"]


def total(spec: Mapping[str, Any], bound: Bound, resource: str) -> Decimal | None:
    """Return the sum over the main containers of a Pod's spec; None if a container does not have the bound.

    A CPU amount is in cores, one of memory in bytes.
    """
    amount = Decimal(0)
    for container in spec["containers"]:
        text = ((container.get("resources") or {}).get(bound) or {}).get(resource)
        if text is None:
            return None
        amount += quantity.parse(text)
    return amount
