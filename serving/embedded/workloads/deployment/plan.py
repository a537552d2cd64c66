"""Decides which Pods of a Deployment to create and to delete. Pure.

The arithmetic is that of k8s.io/kubernetes/pkg/controller/deployment/rolling.go, on Pods instead of
ReplicaSets. Two invariants hold at every step: deletions never take the number of available Pods below
`replicas - maxUnavailable`, and creations never take the number of Pods above `replicas + maxSurge`.
"""

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.embedded.workloads import naming
from serving.embedded.workloads.pods import BURST_REPLICAS, PodFacts, deletion_order
from serving.objects import Object

REPLACE_FAILED_AFTER = dt.timedelta(seconds=10)
"""Delay before a failed Pod is replaced, so that a failing template is not retried in a tight loop."""


@dataclass(frozen=True)
class DeploymentSpec:
    """The spec of a Deployment with its defaults filled in, in Pods and seconds."""

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
        """The least number of available Pods after a deletion."""
        return self.replicas - self.unavailable

    @property
    def ceiling(self) -> int:
        """The greatest number of active Pods."""
        return self.replicas + self.surge


@dataclass(frozen=True)
class DeploymentPlan:
    """Names of Pods to create, at most `BURST_REPLICAS`, Pods to delete, and the time until the next plan
    without a change.
    """

    create: tuple[str, ...] = ()
    delete: tuple[PodFacts, ...] = ()
    requeue_after: dt.timedelta | None = None


def read_spec(deployment: Object) -> DeploymentSpec:
    """Read the spec of a stored Deployment, with Kubernetes' defaults."""
    spec, meta = deployment["spec"], deployment["metadata"]
    replicas = int(spec["replicas"]) if spec.get("replicas") is not None else 1
    strategy = spec.get("strategy") or {}
    recreate = strategy.get("type") == "Recreate"
    rolling = strategy.get("rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    if surge == unavailable == 0:  # both were rounded to 0, and no step of a rollout would be possible
        unavailable = 1
    deadline = spec.get("progressDeadlineSeconds")
    return DeploymentSpec(
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
    """Resolve an int-or-percent, rounded up or down, as k8s.io/apimachinery/pkg/util/intstr."""
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(value)


def next_pods(
    spec: DeploymentSpec,
    pods: Sequence[PodFacts],
    now: dt.datetime,
    *,
    rolled_out: str,
    taken: Iterable[str] = (),
) -> DeploymentPlan:
    """Return the next step towards the spec.

    Args:
        spec: the spec of the Deployment.
        pods: all Pods that it owns, with terminating and finished ones.
        now: UTC.
        rolled_out: hash of the latest template to be rolled out; while paused, only this one gets Pods.
        taken: names of Pods of other owners.
    """
    expired = [p for p in pods if is_expired(p, now)]
    current = [p for p in pods if not p.terminating and not is_expired(p, now)]
    new = [p for p in current if p.template_hash == spec.template_hash]
    old = [p for p in current if p.template_hash != spec.template_hash]
    available = {p.uid for p in current if p.available(spec.min_ready_seconds, now)}

    frozen = spec.paused and rolled_out != spec.template_hash
    # Recreate creates new Pods only once all old ones are gone, terminating ones too.
    draining = spec.recreate and not spec.paused and any(p.template_hash != spec.template_hash for p in pods)
    if spec.replicas == 0:
        count, deletions = 0, current
    elif draining:
        count, deletions = 0, old
    elif spec.paused:
        count, deletions = (
            max(0, spec.replicas - len(current)),
            _surplus(spec, new, old, available, spec.replicas),
        )
    else:
        count = max(0, min(spec.replicas - len(new), spec.ceiling - len(current)))
        deletions = _surplus(spec, new, old, available, spec.ceiling)
        if not deletions:
            deletions = _replaced(spec, new, old, available, count)
    if frozen:
        count = 0
    created = naming.free_names(
        f"{spec.name}-{spec.template_hash}",
        f"{spec.uid}/{spec.template_hash}",
        {p.name for p in pods} | set(taken),
        min(count, BURST_REPLICAS),
    )
    after = dt.timedelta(0) if count > BURST_REPLICAS else next_time(spec, current, now)
    return DeploymentPlan(tuple(created), (*expired, *deletions), after)


def is_expired(pod: PodFacts, now: dt.datetime) -> bool:
    """Whether a finished Pod can be replaced: its end is long ago, or, as the clock was set back, ahead."""
    return (
        pod.finished
        and not pod.terminating
        and pod.finished_at is not None
        and not dt.timedelta(0) <= now - pod.finished_at < REPLACE_FAILED_AFTER
    )


def _surplus(
    spec: DeploymentSpec, new: list[PodFacts], old: list[PodFacts], available: set[str], most: int
) -> list[PodFacts]:
    """Return Pods to delete until at most `replicas` new Pods, and at most `most` Pods in all, remain.

    The new Pods above `replicas` come first, then old Pods, then other new ones. After the first group,
    available Pods are deleted only down to the floor.
    """
    excess = max(len(new) + len(old) - most, len(new) - spec.replicas, 0)
    if not excess:
        return []
    must_be_new = max(0, len(new) - spec.replicas)
    ranked = deletion_order(new, available)
    deletions, remaining = ranked[:must_be_new], ranked[must_be_new:]
    spare = len(available) - sum(p.uid in available for p in deletions) - spec.floor
    return deletions + _deletable(
        [*deletion_order(old, available), *remaining], available, excess - len(deletions), spare
    )


def _replaced(
    spec: DeploymentSpec, new: list[PodFacts], old: list[PodFacts], available: set[str], creating: int
) -> list[PodFacts]:
    """Return old Pods to replace: unavailable ones, then available ones down to the floor.

    `creating` is the number of new Pods that this step creates.
    """
    # As maxScaledDown of rolling.go: new Pods that are not yet available do not count towards the floor.
    new_unavailable = sum(p.uid not in available for p in new) + creating
    total = len(new) + creating + len(old)
    limit = total - spec.floor - new_unavailable
    return _deletable(deletion_order(old, available), available, limit, len(available) - spec.floor)


def _deletable(pods: list[PodFacts], available: set[str], limit: int, spare: int) -> list[PodFacts]:
    """Return the first `limit` Pods of the list, with at most `spare` available ones."""
    deletable: list[PodFacts] = []
    for pod in pods:
        if len(deletable) >= limit:
            break
        if pod.uid not in available:
            deletable.append(pod)
        elif spare > 0:
            deletable.append(pod)
            spare -= 1
    return deletable


def next_time(spec: DeploymentSpec, current: list[PodFacts], now: dt.datetime) -> dt.timedelta | None:
    """Return the time until a Pod becomes available, or a finished one can be replaced; None if none will."""
    due = [p.finished_at + REPLACE_FAILED_AFTER for p in current if p.finished and p.finished_at]
    due += [
        at
        for p in current
        if p.active and (at := p.available_at(spec.min_ready_seconds, now)) is not None and at > now
    ]
    return max(min(due) - now, dt.timedelta(0)) if due else None
