"""Starts of replicas, from the states of their Pods: pending starts, start-up times, failures. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.observation import Replicas
from serving import clock
from serving.objects import is_deleting
from serving.resources import conditions, names

_KEPT = 64
"""Most started, and most failed, replicas of one target between two observations: as many as the policy
remembers."""


class Starts:
    """The starts of one target's Pods that ended since the last observation."""

    def __init__(self) -> None:
        self._started: list[float] = []
        """As `Replicas.started`."""
        self._failed: list[float] = []
        """As `Replicas.failed`."""
        self._failures: dict[str, int] = {}
        """Counted failures of each Pod, by uid: restarts of its containers, and the phase Failed."""
        self._ready: set[str] = set()
        """Uids of the Pods that have been ready; their later failures are not failed starts."""

    def seen(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, now: float) -> None:
        """Take a change of a Pod. A Pod that was ready when first seen gives no start-up time.

        Args:
            before: the Pod before the change; None: it is new to the watch.
            after: the Pod after the change; None: it is deleted.
            now: Unix seconds.
        """
        pod = after or before
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if after is None:
            self._failures.pop(uid, None)
            self._ready.discard(uid)
            return
        if is_ready(after):
            if before is not None and uid not in self._ready and not is_ready(before):
                self._started.append(max(now - _created(after), 0.0))
            self._ready.add(uid)
        if uid not in self._ready:
            self._count_failures(uid, after, now, is_new=before is None)
        del self._started[:-_KEPT], self._failed[:-_KEPT]

    def _count_failures(self, uid: str, pod: Mapping[str, Any], now: float, *, is_new: bool) -> None:
        """Record a failed start if the Pod has failed since its last change; earlier failures of a new Pod do
        not count.
        """
        failures = sum(int(container.get("restartCount", 0)) for container in _containers(pod))
        if (pod.get("status") or {}).get("phase") == "Failed":
            failures += 1
        counted = self._failures.get(uid, failures if is_new else 0)
        self._failures[uid] = max(failures, counted)
        if failures > counted:
            self._failed.append(_longest_run(pod) or max(now - _created(pod), 0.0))

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
            and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")
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


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def _longest_run(pod: Mapping[str, Any]) -> float:
    """Return the seconds of the longest run of a container that has ended; 0 if the Pod reports none."""
    longest = 0.0
    for container in _containers(pod):
        for state in (container.get("lastState") or {}, container.get("state") or {}):
            ended = state.get("terminated") or {}
            if ended.get("startedAt") and ended.get("finishedAt"):
                seconds = clock.parse(ended["finishedAt"]) - clock.parse(ended["startedAt"])
                longest = max(longest, seconds.total_seconds())
    return longest
