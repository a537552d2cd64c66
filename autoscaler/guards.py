"""Guards replace a decision that would remove replicas without readings or against another writer, or that
another autoscaler makes. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from autoscaler import other_writers
from autoscaler.decision import Decision
from autoscaler.signals.board import Health

_WITHOUT_LOAD = frozenset({"MaxReplicas", "FixedCount", "Unknown", "MetricsMissing"})
"""Reasons of decisions that do not depend on the load."""


def without_readings(decision: Decision, desired: int, signals: Sequence[Health]) -> Decision:
    """Return a decision that removes no replica while readings are missing; bounds still apply."""
    if decision.replicas >= desired or decision.reason in _WITHOUT_LOAD:
        return decision
    failure = next((f"{health.source}: {health.message}" for health in signals if not health.healthy), "")
    message = f"no replica is taken away: {failure or 'there is no new reading of the load'}"
    return replace(decision, replicas=desired, reason="MetricsMissing", message=message)


def after_a_raise(decision: Decision, desired: int, raised: other_writers.Raised, moment: float) -> Decision:
    """Return a decision that keeps a count which another writer raised, for as long as `raised` lasts."""
    is_over = moment > raised.until or raised.replicas != desired
    if is_over or decision.replicas >= desired or decision.reason in _WITHOUT_LOAD or not decision.replicas:
        return decision
    message = f"{decision.replicas} needed now; another writer raised the count a moment ago"
    return replace(decision, replicas=desired, reason="RaisedByAnother", message=message)


def of_another_autoscaler(decision: Decision, count: int, least: int) -> Decision:
    """Return a decision for the count that another autoscaler wrote, with the inputs of ours.

    Args:
        decision: ours, which the count replaces.
        count: `spec.replicas` of the Autoscaler.
        least: its `minReplicas`; 1 at least for a predictor until a revision serves.
    """
    message = f"another autoscaler asks for {count} replicas"
    if count < least:
        message += f"; minReplicas is {least}"
    return replace(decision, replicas=max(count, least), reason=other_writers.UNMANAGED, message=message)
