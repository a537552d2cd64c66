"""Writes counts to the scale subresource, and the statuses and Events of Autoscalers. Decides nothing."""

from collections.abc import Sequence
from dataclasses import replace

from autoscaler import other_writers, status
from autoscaler.decision_values import Decision
from autoscaler.signals.board import Health
from autoscaler.state.target_state import LastReport, LastWrite, TargetState
from autoscaler.targets import ScaleTarget, Targets
from serving import clock, errors
from serving.kube import EventRecorder, Key, Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes.conditions import Condition

FIGURES_SECONDS = 30.0
"""Least seconds between two writes of a status in which only figures change, which people read."""


class Writer:
    """The writes of one controller."""

    def __init__(self, kube: Kube, recorder: EventRecorder, targets: Targets) -> None:
        self._kube, self._recorder, self._targets = kube, recorder, targets

    async def act(
        self,
        autoscaler: Object,
        target: ScaleTarget,
        state: TargetState,
        desired: int,
        active: Condition,
        *,
        held: int,
    ) -> None:
        """Write the count of `state.decision`; in Observe mode emit the Event `WouldScale` instead.

        In Observe mode too one replica is started at zero while requests are held. Nothing happens while
        another writer scales the target.

        Args:
            autoscaler: the Autoscaler, which the Events are about.
            target: the target, whose count is written.
            state: the state of the Autoscaler, with the decision.
            desired: the count that the decision replaces: `spec.replicas` of the scale subresource.
            active: the condition `ScalingActive`.
            held: held requests.

        Raises:
            errors.ApiError: the scale subresource refuses the count.
            errors.Unavailable: the scale subresource cannot answer now.
        """
        decision = state.decision
        assert decision is not None
        if active.status == "True" or active.reason == other_writers.UNMANAGED:
            await self._scale(autoscaler, target, state, desired)
            return
        if active.reason == other_writers.OBSERVE and desired == 0 and held:
            state.decision = replace(decision, replicas=1, reason="Woken")
            await self._scale(autoscaler, target, state, desired)
            return
        if active.reason == other_writers.OBSERVE and decision.replicas != state.reported_dry_run_count:
            state.reported_dry_run_count = decision.replicas
            await self._recorder.emit(autoscaler, "WouldScale", _event(target.name, desired, decision))

    async def count_of_another(self, autoscaler: Object, current: int) -> int:
        """Return the count that another autoscaler wrote to the Autoscaler's `spec.replicas`.

        Before its first write, set the field to `current`, as a HorizontalPodAutoscaler cannot read a scale
        subresource without a count.

        Raises:
            errors.Conflict: the Autoscaler has changed since it was read.
        """
        count = autoscaler["spec"].get("replicas")
        if count is not None:
            return int(count)
        meta = autoscaler["metadata"]
        # Another autoscaler may have written its first count since the read.
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"replicas": current}}
        await self._kube.patch(kinds.AUTOSCALER, meta["namespace"], meta["name"], patch)
        return current

    async def _scale(self, autoscaler: Object, target: ScaleTarget, state: TargetState, before: int) -> None:
        """Write the count of `state.decision` instead of `before`, and record the write."""
        namespace, decision = autoscaler["metadata"]["namespace"], state.decision
        assert decision is not None
        patch = {"spec": {"replicas": decision.replicas}}
        state.unconfirmed_count = decision.replicas
        try:
            answer = await self._kube.patch(target.kind, namespace, target.name, patch, subresource="scale")
        except errors.NotFound:
            return  # the target is deleted, which the watch reports
        except errors.ApiError as error:
            if isinstance(error, errors.Conflict | errors.Invalid):
                raise
            # A status of 403 or 500 is tried again later. A Forbidden that leaves here would be reported as a
            # refused read (`AutoscalerController.reconcile`).
            raise errors.Unavailable(str(error)) from error
        state.last_write = LastWrite(decision.replicas, int(answer["metadata"]["resourceVersion"]))
        state.known_count = decision.replicas
        state.changes.insert(0, status.change(before, decision, _time()))
        del state.changes[status.KEPT :]
        self._targets.expire(target.kind, Key(namespace, target.name))
        await self._recorder.emit(autoscaler, "Scaled", _event(target.name, before, decision))

    async def report(
        self,
        autoscaler: Object,
        target: ScaleTarget,
        state: TargetState,
        active: Condition,
        signals: Sequence[Health],
        *,
        monotonic_now: float,
    ) -> None:
        """Write the status if it has news, or others have changed it; changes of figures alone wait for
        `FIGURES_SECONDS`.

        Args:
            autoscaler: the Autoscaler, with its current status.
            target: the target, with its counts.
            state: the state of the Autoscaler, with the decision.
            active: the condition `ScalingActive`.
            signals: the health of the sources of readings.
            monotonic_now: monotonic seconds.
        """
        content = _content(target, state, active, signals, clock.now().timestamp())
        old = autoscaler.get("status") or {}
        new = status.build(content, old, autoscaler["metadata"].get("generation", 1), _time())
        may_wait = not status.is_urgent(old, new) and not _is_overwritten(autoscaler, state)
        if may_wait and (not status.is_news(old, new) or monotonic_now - state.reported_at < FIGURES_SECONDS):
            return
        previous = state.last_report
        state.last_report = None  # the watch may show this write before its answer comes
        try:
            stored = await self._kube.apply_status(kinds.AUTOSCALER, autoscaler, new)
        except (errors.ApiError, errors.Unavailable):
            state.last_report = previous  # the retry must still see that others have changed the status
            raise
        version = int(stored["metadata"]["resourceVersion"])
        state.last_report = LastReport(status.fingerprint(stored["status"]), version)
        state.reported_at = monotonic_now

    async def refuse(self, autoscaler: Object, reason: str, message: str) -> None:
        """Write a status with the reason why the target cannot be sized."""
        decision = Decision(0, reason, message)
        conditions = [Condition(type_, "False", reason, message) for type_ in ("Ready", "ScalingActive")]
        old = autoscaler.get("status") or {}
        generation = autoscaler["metadata"].get("generation", 1)
        changes = old.get("decisions") or []
        content = status.StatusContent(decision, current=0, ready=0, conditions=conditions, changes=changes)
        new = status.build(content, old, generation, _time())
        if status.is_urgent(old, new):
            await self._kube.apply_status(kinds.AUTOSCALER, autoscaler, new)


def _is_overwritten(autoscaler: Object, state: TargetState) -> bool:
    """Whether others have changed the status since the last report."""
    last = state.last_report
    if last is None or int(autoscaler["metadata"]["resourceVersion"]) <= last.resource_version:
        return False  # the last report, or the watch does not show it yet
    return status.fingerprint(autoscaler.get("status") or {}) != last.fingerprint


def _content(
    target: ScaleTarget, state: TargetState, active: Condition, signals: Sequence[Health], now: float
) -> status.StatusContent:
    """Return the content of the status after the last decision; `now` is in Unix seconds."""
    decision, counts = state.decision, target.object.get("status") or {}
    assert decision is not None
    ready = Condition("Ready", "True", decision.reason, decision.message)
    return status.StatusContent(
        decision,
        current=counts.get("replicas", 0),
        ready=counts.get("readyReplicas", 0),
        conditions=[ready, active],
        signals=signals,
        learned=state.learned_status(now),
        schedule=state.bounds(now).schedule,
        changes=state.changes,
        metrics=status.metrics(state.config.metrics, decision.metric_needs),
        selector=target.selector if active.reason == other_writers.UNMANAGED else "",
    )


def _event(name: str, before: int, decision: Decision) -> str:
    return f"{name}: {before} to {decision.replicas}: {decision.message}"


def _time() -> str:
    """Return the current time in RFC 3339."""
    return clock.rfc3339(clock.now())
