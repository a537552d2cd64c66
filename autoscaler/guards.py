"""Guards replace the policy's decision in three cases: it would remove replicas while readings are missing,
it would undo a raise by another writer, or another autoscaler decides the count. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from autoscaler import other_writers
from autoscaler.decision_values import Decision
from autoscaler.signals.board import Health

_WITHOUT_LOAD = frozenset({"MaxReplicas", "FixedCount", "Unknown", "MetricsMissing"})
"""Reasons of decisions that no guard replaces: a low load is not the cause of their count."""


def without_readings(decision: Decision, desired: int, most: int, signals: Sequence[Health]) -> Decision:
    """Return a decision that removes no replica while readings are missing; bounds still apply.

    Args:
        decision: of the policy.
        desired: current `spec.replicas`.
        most: the maximum now.
        signals: health of the sources of readings; the message names the first unhealthy one.
    """
    kept = min(desired, most)
    if decision.replicas >= kept or decision.reason in _WITHOUT_LOAD:
        return decision
    failure = next((f"{health.source}: {health.message}" for health in signals if not health.healthy), "")
    message = f"no replica is taken away: {failure or 'there is no new reading of the load'}"
    message += _above(desired, most)
    return replace(decision, replicas=kept, reason="MetricsMissing", message=message)


def after_a_raise(
    decision: Decision, desired: int, most: int, raised: other_writers.Raised, monotonic_now: float
) -> Decision:
    """Return a decision that keeps a count which another writer raised, until `raised.until`; bounds apply.

    A decision for zero replicas is not replaced: the policy's idle time alone keeps the last replicas.

    Args:
        decision: of the policy.
        desired: current `spec.replicas`.
        most: the maximum now.
        raised: the last raise by another writer.
        monotonic_now: monotonic seconds.
    """
    kept = min(desired, most)
    # A raise above the maximum goes on as a raise to the maximum.
    is_over = monotonic_now > raised.until or desired not in (raised.replicas, min(raised.replicas, most))
    is_to_zero = decision.replicas == 0
    if is_over or is_to_zero or decision.replicas >= kept or decision.reason in _WITHOUT_LOAD:
        return decision
    message = f"{decision.replicas} needed now; another writer raised the count a moment ago"
    message += _above(desired, most)
    return replace(decision, replicas=kept, reason="RaisedByAnother", message=message)


def of_another_autoscaler(decision: Decision, count: int, least: int) -> Decision:
    """Return `decision` with the count that another autoscaler wrote, so that the inputs are still reported.

    Args:
        decision: of the policy.
        count: `spec.replicas` of the Autoscaler.
        least: its `minReplicas`, which the Inference controller keeps above 0 until a revision is proven.
    """
    message = f"another autoscaler asks for {count} replicas"
    if count < least:
        message += f"; minReplicas is {least}"
    return replace(decision, replicas=max(count, least), reason=other_writers.UNMANAGED, message=message)


def _above(desired: int, most: int) -> str:
    """Return the part of a message for a count above the maximum."""
    return f"; the maximum is {most}" if desired > most else ""
