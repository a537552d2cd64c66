"""Starts of replicas, from the states of their Pods: pending starts, start-up times, failures. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.observation import Replicas
from serving import clock
from serving.objects import is_deleting
from serving.resources import conditions, names

_KEPT = 64
"""Most starts of one target between two observations: as many as the policy remembers."""


class Starts:
    """The starts of one target's Pods since the last observation."""

    def __init__(self) -> None:
        self._started: list[float] = []
        self._failed: list[float] = []
        self._runs: dict[str, int] = {}
        """Counted failures of a Pod's containers, by uid."""
        self._ready: set[str] = set()

    def seen(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, now: float) -> None:
        """Take a change of a Pod. A Pod that was ready when first seen gives no start-up time."""
        pod = after or before
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if after is None:
            self._runs.pop(uid, None)
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
        runs = sum(int(container.get("restartCount", 0)) for container in _containers(pod))
        if (pod.get("status") or {}).get("phase") == "Failed":
            runs += 1
        counted = self._runs.get(uid, runs if is_new else 0)
        self._runs[uid] = max(runs, counted)
        if runs > counted:
            self._failed.append(max(_run_seconds(pod), 0.0) or max(now - _created(pod), 0.0))

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
    text = pod["metadata"].get("creationTimestamp")
    return clock.parse(text).timestamp() if text else 0.0


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def _run_seconds(pod: Mapping[str, Any]) -> float:
    """Return the seconds of the longest terminated run of a container; 0 where the Pod reports none."""
    longest = 0.0
    for container in _containers(pod):
        for state in (container.get("lastState") or {}, container.get("state") or {}):
            ended = state.get("terminated") or {}
            if ended.get("startedAt") and ended.get("finishedAt"):
                seconds = clock.parse(ended["finishedAt"]) - clock.parse(ended["startedAt"])
                longest = max(longest, seconds.total_seconds())
    return longest
