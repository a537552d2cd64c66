"""The text of `slipway autoscale explain`. Pure; every field of the Autoscaler may be missing."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from serving.cli.autoscale import summary
from serving.cli.objects.sections import titled
from serving.cli.output import tables
from serving.objects import Object
from serving.report_pages import formatting
from serving.resources.formats import ages

_SOURCES: Mapping[str, str] = {
    "Profile": "measured, in a CapacityProfile",
    "Corrected": "measured, in a CapacityProfile, and corrected by what replicas carried",
    "Learned": "learned from load and latency",
}
"""Words for `status.learned.capacity.source`."""
_MODES: Mapping[str, str] = {
    "Observe": "Prediction is in the mode Observe: decisions are reported, and not applied.",
    "Disabled": "Prediction is Disabled: replicas follow the load.",
}
"""Sentences for `spec.prediction.mode`."""


def explanation(scaler: Object, now: datetime) -> str:
    """Return sentences, then titled sections with the facts behind them."""
    state = scaler.get("status") or {}
    parts = ["\n".join(_replicas(scaler, now))]
    sections = {
        f"Load{_age(state, now)}": _load(state),
        "Next": _next(scaler),
        "Learned": _learned(state),
        "Metrics": _metrics(state),
        "Last changes": _changes(state, now),
        "Signals": _signals(state),
    }
    parts += [titled(title, text) for title, text in sections.items() if text]
    return "\n\n".join(parts).replace("\u00a0", " ")  # the no-break spaces of figures are for HTML pages


def _replicas(scaler: Object, now: datetime) -> Iterator[str]:
    """Yield sentences: the count, its reason, the binding rule, the mode, the conditions that are False."""
    spec, state = scaler.get("spec") or {}, scaler.get("status") or {}
    bounds = f"between {spec.get('minReplicas', 1)} and {spec.get('maxReplicas', 1)}"
    name, target = summary.name(scaler), summary.target(scaler)
    if "desiredReplicas" not in state:
        yield f"{name} wants {target} {bounds} replicas, and has not decided anything yet."
        yield from _ready(state)
        return
    ready = f", {state['readyReplicas']} ready" if "readyReplicas" in state else ""
    since = f", since {ages.since(state['lastScaleTime'], now)}" if state.get("lastScaleTime") else ""
    replicas = formatting.count(state["desiredReplicas"], "replica")
    yield f"{name} wants {replicas} of {target}{ready}{since}; {bounds}."
    if state.get("reason"):
        yield f"Why: {_sentence(state['reason'])}"
    yield from _binding_rule(state)
    mode = (spec.get("prediction") or {}).get("mode", "")
    if mode in _MODES:
        yield _MODES[mode]
    yield from _ready(state)


def _binding_rule(state: Object) -> Iterator[str]:
    """Yield the binding rule, how it changes the need, and the active schedule."""
    decision = state.get("decision") or {}
    rule, needed, desired = decision.get("rule", ""), decision.get("needed"), state["desiredReplicas"]
    if rule:
        yield f"The binding rule: {rule}."
    if needed is not None and needed != desired:
        yield f"The load asks for {formatting.count(needed, 'replica')}; the rule makes it {desired}."
    if decision.get("schedule"):
        yield f"The bounds are those of the schedule {decision['schedule']}."


def _ready(state: Object) -> Iterator[str]:
    """Yield the conditions that are False."""
    for condition in state.get("conditions") or []:
        if condition.get("type") in ("Ready", "ScalingActive") and condition.get("status") == "False":
            reason, message = condition.get("reason", ""), condition.get("message", "")
            yield f"{condition['type']} is False: {reason}: {message}"


def _age(state: Object, now: datetime) -> str:
    """Return the age of the decision for a title: the autoscaler writes a decision only if it has news."""
    time = (state.get("decision") or {}).get("time")
    return f" when that was decided, {ages.since(time, now)} ago" if time else ""


def _load(state: Object) -> str:
    """Return the load and the metric that decided."""
    decision = state.get("decision") or {}
    lines = []
    if "rate" in decision:
        lines.append(
            f"{formatting.number(decision['rate'])} units of work arrive per second"
            " (requests, unless a metric counts tokens)."
        )
    if decision.get("capacity"):
        lines.append(
            f"One replica takes {formatting.number(decision['capacity'])} per second{_source(state)}."
        )
    elif decision:
        lines.append("What one replica takes is not known yet.")
    if decision.get("backlog"):
        lines.append(
            f"{formatting.number(decision['backlog'])} requests wait beyond what the replicas work on."
        )
    if decision.get("metric"):
        lines.append(f"The metric that asks for the most replicas is {decision['metric']}.")
    return "\n".join(lines)


def _source(state: Object) -> str:
    source = ((state.get("learned") or {}).get("capacity") or {}).get("source", "")
    return f" ({_SOURCES[source]})" if source in _SOURCES else ""


def _next(scaler: Object) -> str:
    """Return the forecast and the needs that follow from it."""
    state = scaler.get("status") or {}
    decision = state.get("decision") or {}
    forecast = decision.get("forecast") or {}
    lines = []
    if "upper" in forecast:
        span = formatting.duration(forecast.get("horizonSeconds", 0))
        lines.append(
            f"Within {span} a load of {formatting.number(forecast['upper'])} per second at most is expected"
            f" (median {formatting.number(forecast.get('median', 0))},"
            f" 10 % quantile {formatting.number(forecast.get('lower', 0))})."
        )
        lines += _replicas_of(decision, forecast)
    if decision.get("startupSeconds"):
        lines.append(
            "A replica that is ordered now is ready within"
            f" {formatting.duration(decision['startupSeconds'])}."
        )
    keep = (state.get("learned") or {}).get("keepAliveSeconds")
    if (scaler.get("spec") or {}).get("minReplicas", 1) == 0 and keep is not None:
        lines.append(f"Without a request for {formatting.duration(keep)}, the last replicas go.")
    return "\n".join(lines)


def _replicas_of(decision: Object, forecast: Object) -> Iterator[str]:
    """Yield the division of the forecast by the capacity of one replica."""
    if decision.get("capacity"):
        replicas = formatting.number(forecast["upper"] / decision["capacity"])
        yield (
            f"That is {formatting.number(forecast['upper'])} / {formatting.number(decision['capacity'])}"
            f" = {replicas} replicas,"
            f" before backlog, limits and what is held: {decision.get('needed', 0)} are needed."
        )


def _learned(state: Object) -> str:
    learned = state.get("learned") or {}
    capacity = learned.get("capacity") or {}
    rows = []
    if capacity:
        rows.append(
            [
                "capacity",
                f"{formatting.number(capacity.get('rate', 0))} per second",
                _SOURCES.get(capacity.get("source", "")),
            ]
        )
        if capacity.get("concurrency"):
            rows.append(
                ["concurrency", formatting.number(capacity["concurrency"]), "requests in flight at that rate"]
            )
    if learned.get("startupSeconds") is not None:
        rows.append(
            ["start-up", formatting.duration(learned["startupSeconds"]), "a high quantile of its starts"]
        )
    if learned.get("keepAliveSeconds") is not None:
        rows.append(
            [
                "keep-alive",
                formatting.duration(learned["keepAliveSeconds"]),
                "idle time before the last replicas go",
            ]
        )
    return tables.text(["What", "Value", "Source"], rows) if rows else ""


def _metrics(state: Object) -> str:
    decides = (state.get("decision") or {}).get("metric", "")
    rows = [
        [
            metric.get("name"),
            _figure(metric, "target"),
            _figure(metric, "value"),
            metric.get("needed"),
            "; ".join(
                filter(None, ["decides" if metric.get("name") == decides else "", metric.get("message")])
            )
            or "-",
        ]
        for metric in state.get("metrics") or []
    ]
    return tables.text(["Metric", "Target", "Value", "Needed", "Note"], rows) if rows else ""


def _figure(metric: Object, field: str) -> str | None:
    return None if metric.get(field) is None else formatting.number(metric[field])


def _changes(state: Object, now: datetime) -> str:
    rows = [
        [
            ages.since(change.get("time"), now),
            f"{change.get('fromReplicas', '?')} -> {change.get('toReplicas', '?')}",
            change.get("reason"),
            change.get("message"),
        ]
        for change in state.get("decisions") or []
    ]
    return tables.text(["Age", "Replicas", "Rule", "Why"], rows) if rows else ""


def _signals(state: Object) -> str:
    rows = [
        [signal.get("source"), "yes" if signal.get("healthy") else "NO", signal.get("message") or "-"]
        for signal in state.get("signals") or []
    ]
    return tables.text(["Source", "Healthy", "Message"], rows) if rows else ""


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."
