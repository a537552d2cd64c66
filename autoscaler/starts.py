"""Starts of replicas, from the states of their Pods: pending starts, start-up times, failures. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.observation import Replicas
from serving import clock
from serving.objects import is_deleting
from serving.resources import names
from serving.resources.kubernetes import conditions, container_statuses, pod_phases

_KEPT = 64
"""Most started, and most failed, replicas of one target between two observations: as many as the policy
remembers."""


class Starts:
    """The starts of one target's Pods that ended since the last observation."""

    def __init__(self) -> None:
        self._started: list[float] = []
        """Seconds that each successful start took."""
        self._failed: list[float] = []
        """Seconds that each failed start lost."""
        self._failures: dict[str, int] = {}
        """Failures of each Pod, by uid: restarts of its containers, and the phase Failed."""
        self._began: dict[str, float] = {}
        """Unix seconds at which each Pod's start began, by uid: its creation, or its last failure. A Pod that
        had failed before it was first seen has no entry until it fails again."""
        self._ready: set[str] = set()
        """Uids of the Pods that have been ready; their later failures are not failed starts."""

    def observe(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, now: float) -> None:
        """Record a change of a Pod. A Pod that had been ready, or had failed, when it was first seen gives no
        start-up time.

        Args:
            before: the Pod before the change, of which earlier changes may be unseen; None: the Pod is new to
                the watch, just created or in its first list.
            after: the Pod after the change; None: it is deleted.
            now: Unix seconds.
        """
        earliest = before or after
        if earliest is None:
            return
        uid = earliest["metadata"]["uid"]
        if after is None:
            self._failures.pop(uid, None)
            self._began.pop(uid, None)
            self._ready.discard(uid)
            return
        if before is not None and _has_been_ready(before):
            self._ready.add(uid)
        if uid in self._ready:
            return
        if uid not in self._failures:
            self._failures[uid] = _failures(earliest)
            if not self._failures[uid]:
                self._began[uid] = _created(earliest)
        if is_ready(after):
            if before is not None and uid in self._began:
                self._started.append(max(now - self._began[uid], 0.0))
        # The SIGTERM of a deletion ends a container that loads with 143, and its Pod becomes Failed.
        elif not is_deleting(after) and (failures := _failures(after)) > self._failures[uid]:
            if uid in self._began:
                self._failed.append(max(now - self._began[uid], 0.0))
            self._failures[uid], self._began[uid] = failures, now
        if _has_been_ready(after):
            self._ready.add(uid)
        del self._started[:-_KEPT], self._failed[:-_KEPT]

    def take(self, desired: int, ready: int, pods: Iterable[Mapping[str, Any]]) -> Replicas:
        """Return the replicas for a decision, and forget the starts that they include.

        Args:
            desired: `spec.replicas` of the scale subresource.
            ready: ready replicas.
            pods: all Pods of the target.
        """
        starting = sorted(
            _created(pod)
            for pod in pods
            if not is_ready(pod)
            and not is_deleting(pod)
            and not pod_phases.has_ended(pod)
            and names.STANDBY_LABEL not in (pod["metadata"].get("labels") or {})
        )
        replicas = Replicas(desired, ready, tuple(starting), tuple(self._started), tuple(self._failed))
        self._started.clear()
        self._failed.clear()
        return replicas

    @property
    def has_news(self) -> bool:
        """Whether a start has ended since the last observation."""
        return bool(self._started or self._failed)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a Pod takes requests."""
    return conditions.is_true(pod, "Ready")


def _created(pod: Mapping[str, Any]) -> float:
    """Return the Unix seconds of the Pod's creation."""
    text = pod["metadata"].get("creationTimestamp")
    return clock.parse(text).timestamp() if text else 0.0


def _has_been_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a Pod is or was ready: `Ready` becomes False when the Pod begins to start, and again later only
    if it was True in between.
    """
    if is_ready(pod):
        return True
    status = pod.get("status") or {}
    became = (conditions.find(status.get("conditions"), "Ready") or {}).get("lastTransitionTime")
    began = status.get("startTime")
    if not became or not began:
        return False
    # Kubelets write both times with the first status, a second apart at most.
    return (clock.parse(became) - clock.parse(began)).total_seconds() > 1.0


def _failures(pod: Mapping[str, Any]) -> int:
    """Return the restarts of a Pod's containers and init containers, and one more for the phase Failed."""
    status = pod.get("status") or {}
    restarts = sum(int(each.get("restartCount", 0)) for each in container_statuses.of(status))
    return restarts + (status.get("phase") == "Failed")
