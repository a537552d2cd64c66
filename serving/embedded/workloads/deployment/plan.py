"""Which Pods of a Deployment to create and which to delete now.

The arithmetic is that of k8s.io/kubernetes/pkg/controller/deployment/rolling.go, on Pods instead of ReplicaSets.
Two promises, at every step and whatever Pods do meanwhile: deletions never take the number of available Pods
below `replicas - maxUnavailable`, and creations never take that of Pods above `replicas + maxSurge`.
"""

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.embedded.workloads import naming
from serving.embedded.workloads.pods import PodState
from serving.objects import Object

REPLACE_FAILED_AFTER = dt.timedelta(seconds=10)
"""A Pod that the node gave up on keeps its place for so long, lest a refused template turn in a tight loop."""


@dataclass(frozen=True)
class Wanted:
    """What a Deployment asks for, in plain numbers: Pods, seconds."""

    name: str
    uid: str
    replicas: int
    template_hash: str
    surge: int = 1
    unavailable: int = 0
    recreate: bool = False
    paused: bool = False
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 600

    @property
    def floor(self) -> int:
        """Available Pods that a deletion has to leave."""
        return self.replicas - self.unavailable

    @property
    def ceiling(self) -> int:
        """Most active Pods."""
        return self.replicas + self.surge


@dataclass(frozen=True)
class Plan:
    """Names to create, Pods to delete, and when to look again though nothing changed (None: never)."""

    create: tuple[str, ...] = ()
    delete: tuple[PodState, ...] = ()
    requeue_after: dt.timedelta | None = None


def wanted(deployment: Object) -> Wanted:
    """Read a stored Deployment; where it is silent, Kubernetes' defaults hold."""
    spec, meta = deployment["spec"], deployment["metadata"]
    replicas = int(spec["replicas"]) if spec.get("replicas") is not None else 1
    strategy = spec.get("strategy") or {}
    recreate = strategy.get("type") == "Recreate"
    rolling = strategy.get("rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    if surge == unavailable == 0:
        unavailable = 1
    deadline = spec.get("progressDeadlineSeconds")
    return Wanted(
        name=meta["name"],
        uid=meta["uid"],
        replicas=replicas,
        template_hash=naming.template_hash(spec["template"]),
        surge=0 if recreate else surge,
        unavailable=replicas if recreate else min(unavailable, replicas),
        recreate=recreate,
        paused=bool(spec.get("paused")),
        min_ready_seconds=int(spec.get("minReadySeconds") or 0),
        progress_deadline_seconds=600 if deadline is None else int(deadline),
    )


def _share(value: int | str, total: int, *, up: bool) -> int:
    """Resolve an int-or-percent: k8s.io/apimachinery/pkg/util/intstr."""
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(value)


def plan(
    want: Wanted, pods: Sequence[PodState], now: dt.datetime, *,
    rolled_out: str, taken: Iterable[str] = (),
) -> Plan:  # fmt: skip
    """Return the next step towards what is wanted.

    Args:
        want: what the Deployment asks for.
        pods: all Pods that it owns, the terminating and finished ones too.
        now: UTC.
        rolled_out: hash of the template that was rolled out last; while paused, no other gets Pods.
        taken: names that cannot be had although none of `pods` has them.
    """
    expired = [p for p in pods if is_expired(p, now)]
    places = [p for p in pods if not p.terminating and p not in expired]
    new = [p for p in places if p.template_hash == want.template_hash]
    old = [p for p in places if p.template_hash != want.template_hash]
    available = {p.uid for p in places if p.available(want.min_ready_seconds, now)}

    frozen = want.paused and rolled_out != want.template_hash
    draining = want.recreate and not want.paused and any(p.template_hash != want.template_hash for p in pods)
    if want.replicas == 0:
        count, doomed = 0, places
    elif draining:
        count, doomed = 0, old
    elif want.paused:
        count, doomed = (
            max(0, want.replicas - len(places)),
            _surplus(want, new, old, available, want.replicas),
        )
    else:
        count = max(0, min(want.replicas - len(new), want.ceiling - len(places)))
        doomed = _surplus(want, new, old, available, want.ceiling)
        if not doomed:
            doomed = _replaced(want, new, old, available, count)
    created = () if frozen else naming.free_names(
        f"{want.name}-{want.template_hash}", f"{want.uid}/{want.template_hash}",
        {p.name for p in pods} | set(taken), count,
    )  # fmt: skip
    return Plan(tuple(created), (*expired, *doomed), next_look(want, places, now))


def is_expired(pod: PodState, now: dt.datetime) -> bool:
    """Whether a Pod that the node gave up on has held its place for long enough."""
    return (
        pod.finished
        and not pod.terminating
        and pod.finished_at is not None
        and pod.finished_at + REPLACE_FAILED_AFTER <= now
    )


def _surplus(
    want: Wanted, new: list[PodState], old: list[PodState], available: set[str], most: int
) -> list[PodState]:
    """Pods over the limits: the unavailable first, then available old ones as far as the floor allows."""
    excess = max(len(new) + len(old) - most, len(new) - want.replicas, 0)
    if not excess:
        return []
    must_be_new = max(0, len(new) - want.replicas)
    doomed = _ranked(new, available)[:must_be_new]
    spare = len(available) - sum(p.uid in available for p in doomed) - want.floor
    rest = [p for p in _ranked(new, available) if p not in doomed]
    return doomed + _that_can_go([*_ranked(old, available), *rest], available, excess - len(doomed), spare)


def _replaced(
    want: Wanted, new: list[PodState], old: list[PodState], available: set[str], creating: int
) -> list[PodState]:
    """Old Pods that can go now: those that are not available first, then as many as the floor leaves."""
    new_unavailable = sum(p.uid not in available for p in new) + creating
    limit = len(new) + creating + len(old) - want.floor - new_unavailable
    return _that_can_go(_ranked(old, available), available, limit, len(available) - want.floor)


def _that_can_go(pods: list[PodState], available: set[str], limit: int, spare: int) -> list[PodState]:
    """The first `limit` Pods of the list, but of the available ones only `spare`."""
    found: list[PodState] = []
    for pod in pods:
        if len(found) >= limit:
            break
        if pod.uid not in available:
            found.append(pod)
        elif spare > 0:
            found.append(pod)
            spare -= 1
    return found


def _ranked(pods: list[PodState], available: set[str]) -> list[PodState]:
    """Order by how little is lost: unavailable, not ready, pending, lately ready, often restarted, newest."""
    newest_first = sorted(pods, key=lambda p: (p.created, p.name), reverse=True)
    return sorted(
        newest_first,
        key=lambda p: (
            p.uid in available,
            p.ready,
            p.phase == "Running",
            -(p.ready_since.timestamp() if p.ready_since else 0),
            -p.restarts,
        ),
    )


def next_look(want: Wanted, places: list[PodState], now: dt.datetime) -> dt.timedelta | None:
    """Return when the next Pod becomes available by the passing of time, or a failed one has held its place enough."""
    due = [p.finished_at + REPLACE_FAILED_AFTER for p in places if p.finished and p.finished_at]
    due += [
        at
        for p in places
        if p.active and (at := p.available_at(want.min_ready_seconds)) is not None and at > now
    ]
    return max(min(due) - now, dt.timedelta(0)) if due else None
