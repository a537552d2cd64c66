"""Writes counts to the scale subresource, and the statuses and Events of Autoscalers. Decides nothing."""

from collections.abc import Sequence
from dataclasses import replace

from autoscaler import other_writers, status
from autoscaler.decision import Decision
from autoscaler.signals.board import Health
from autoscaler.state.target_state import TargetState
from autoscaler.targets import ScaleTarget, Targets
from serving import clock, errors
from serving.kube import EventRecorder, Key, Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.conditions import Condition

SAY_SECONDS = 30.0
"""Seconds between statuses in which only figures change: people read them, and each is a write."""


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
        """Write the count instead of `desired`, or emit an Event, by the condition `active`.

        In Observe mode too a replica starts while `held` requests wait at zero.

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
        """Return the count that another autoscaler wrote; before its first write, write the `current` one.

        A HorizontalPodAutoscaler cannot read a scale subresource without a count.
        """
        count = autoscaler["spec"].get("replicas")
        if count is not None:
            return int(count)
        meta, patch = autoscaler["metadata"], {"spec": {"replicas": current}}
        await self._kube.patch(kinds.AUTOSCALER, meta["namespace"], meta["name"], patch)
        return current

    async def _scale(self, autoscaler: Object, target: ScaleTarget, state: TargetState, before: int) -> None:
        namespace, decision = autoscaler["metadata"]["namespace"], state.decision
        assert decision is not None
        patch = {"spec": {"replicas": decision.replicas}}
        state.intended = decision.replicas
        try:
            answer = await self._kube.patch(target.kind, namespace, target.name, patch, subresource="scale")
        except errors.NotFound:
            return  # the target is deleted, which the watch reports
        except errors.ApiError as error:
            if isinstance(error, errors.Conflict | errors.Forbidden | errors.Invalid):
                raise
            raise errors.Unavailable(str(error)) from error  # a status of 500 is tried again later
        state.last_write = decision.replicas, int(answer["metadata"]["resourceVersion"])
        state.known = decision.replicas
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
        moment: float,
    ) -> None:
        """Write the status where it has news; figures alone wait for `SAY_SECONDS`, by a `moment` in
        monotonic seconds.
        """
        content = _content(target, state, active, signals, clock.now().timestamp())
        old = autoscaler.get("status") or {}
        new = status.build(content, old, autoscaler["metadata"].get("generation", 1), _time())
        may_wait = not status.is_urgent(old, new)
        if may_wait and (not status.is_news(old, new) or moment - state.reported < SAY_SECONDS):
            return
        await self._kube.apply_status(kinds.AUTOSCALER, autoscaler, new)
        state.reported = moment

    async def refuse(self, autoscaler: Object, reason: str, message: str) -> None:
        """Write a status that gives the reason why nothing is sized."""
        decision = Decision(0, reason, message)
        ready = [Condition(type_, "False", reason, message) for type_ in ("Ready", "ScalingActive")]
        old = autoscaler.get("status") or {}
        generation = autoscaler["metadata"].get("generation", 1)
        changes = old.get("decisions") or []
        new = status.build(status.Content(decision, 0, 0, ready, changes=changes), old, generation, _time())
        if status.is_urgent(old, new):
            await self._kube.apply_status(kinds.AUTOSCALER, autoscaler, new)


def _content(
    target: ScaleTarget, state: TargetState, active: Condition, signals: Sequence[Health], now: float
) -> status.Content:
    """Return the content of the status after the last decision."""
    decision, counts = state.decision, target.object.get("status") or {}
    assert decision is not None
    ready = Condition("Ready", "True", decision.reason, decision.message)
    return status.Content(
        decision,
        counts.get("replicas", 0),
        counts.get("readyReplicas", 0),
        [ready, active],
        signals,
        state.learned(now),
        state.schedule(now),
        state.changes,
        status.metrics(state.config.metrics, decision.metric_needs),
        target.selector if active.reason == other_writers.UNMANAGED else "",
    )


def _event(name: str, before: int, decision: Decision) -> str:
    return f"{name}: {before} to {decision.replicas}: {decision.message}"


def _time() -> str:
    return clock.rfc3339(clock.now())
