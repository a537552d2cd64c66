"""The table of `slipway autoscale status`. Pure; every field of an Autoscaler may be missing."""

from collections.abc import Iterable
from typing import Any

from serving.cli.output import tables
from serving.objects import Object
from serving.report_pages import formatting

HEADERS = (
    "Name",
    "Target",
    "Min",
    "Max",
    "Desired",
    "Ready",
    "Needed",
    "Rate",
    "Expected",
    "Capacity",
    "Rule",
    "Reason",
)
"""Rate, expected and capacity are work per second; expected is the forecast that replicas are sized on."""
_IN_LINE = slice(HEADERS.index("Desired"), HEADERS.index("Reason"))
"""Columns that a line names; the reason is its end."""


def status(scalers: Iterable[Object]) -> str:
    """Return the table of Autoscalers."""
    return tables.text(HEADERS, [row(scaler) for scaler in sorted(scalers, key=name)])


def name(scaler: Object) -> str:
    """Return the name of the Autoscaler."""
    return str(scaler["metadata"]["name"])


def row(scaler: Object) -> list[object]:
    """Return the cells of one Autoscaler; an unknown value is None."""
    spec, state = scaler.get("spec") or {}, scaler.get("status") or {}
    decision = state.get("decision") or {}
    forecast = decision.get("forecast") or {}
    return [
        name(scaler),
        target(scaler),
        spec.get("minReplicas", 1),
        spec.get("maxReplicas", 1),
        state.get("desiredReplicas"),
        state.get("readyReplicas"),
        decision.get("needed"),
        _number(decision.get("rate")),
        _number(forecast.get("upper")),
        _number(decision.get("capacity") or None),
        decision.get("rule"),
        state.get("reason"),
    ]


def target(scaler: Object) -> str:
    """Return the kind and the name of the scale target, such as `deployment/NAME`."""
    reference = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
    return f"{str(reference.get('kind', 'Deployment')).lower()}/{reference.get('name', '')}"


def line(scaler: Object) -> str:
    """Return one Autoscaler as one line, for `status -w` without a terminal."""
    words = [
        f"{header.lower()} {value}"
        for header, value in zip(HEADERS[_IN_LINE], row(scaler)[_IN_LINE], strict=True)
        if value not in (None, "")
    ]
    reason = (scaler.get("status") or {}).get("reason") or "nothing decided yet"
    return f"{name(scaler)}: {', '.join(words)}{'; ' if words else ''}{reason}"


def _number(value: Any) -> str | None:
    return None if value is None else formatting.number(float(value))
