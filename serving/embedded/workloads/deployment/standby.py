"""Decides about standby replicas: started Pods of a Deployment that get no traffic until promoted. Pure.

The annotation `slipway.dev/standby` of a Deployment has the wanted number of standby Pods. The label of the
same name excludes a Pod from EndpointSlices and from the Deployment's counts; removing the label promotes the
Pod. A standby Pod is created only while every serving replica is available, so that its start takes no
resources from replicas that start. Kubernetes has no equivalent.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.embedded.workloads.deployment.plan import DeploymentSpec, is_expired, next_time
from serving.embedded.workloads.pods import PodFacts
from serving.resources import names

MAX_STANDBYS = 100
"""The limit of an Inference's schema, for annotations that users write."""


@dataclass(frozen=True)
class StandbyPlan:
    """Pods to promote, standby Pods to create, Pods to delete, and the time until the next plan."""

    promote: tuple[PodFacts, ...] = ()
    create: int = 0
    delete: tuple[PodFacts, ...] = ()
    requeue_after: dt.timedelta | None = None


def count(deployment: Mapping[str, Any]) -> int:
    """Return the wanted number of standby Pods of a Deployment; 0 if the annotation is not a number."""
    text = (deployment["metadata"].get("annotations") or {}).get(names.STANDBY_ANNOTATION, "")
    return min(int(text), MAX_STANDBYS) if text.isdecimal() else 0


def next_standbys(
    standbys: Sequence[PodFacts],
    spec: DeploymentSpec,
    now: dt.datetime,
    *,
    kept: int,
    needed: int,
    settled: bool,
) -> StandbyPlan:
    """Return the next step.

    Args:
        standbys: the Deployment's Pods with the label.
        spec: the spec of the Deployment.
        now: UTC.
        kept: the wanted number of standby Pods, from `count`.
        needed: the number of replicas to create.
        settled: whether every serving replica is available.
    """
    living = [p for p in standbys if p.active and p.template_hash == spec.template_hash]
    # Equally ready Pods have a fixed order: a plan that is repeated before the watch has shown a promotion
    # takes the same Pods.
    ranked = sorted(living, key=lambda p: (not p.ready, p.created, p.name))
    promoted, remaining = ranked[:needed], ranked[needed:]
    if spec.paused:  # the template may not be rolled out: the standby Pods of the serving template remain
        return StandbyPlan(tuple(promoted))
    broken = [p for p in standbys if p.finished and not p.terminating]
    deletions = [p for p in standbys if p.active and p.template_hash != spec.template_hash]
    deletions += [p for p in broken if is_expired(p, now)] + remaining[kept:]
    missing = kept - len(remaining) - len(broken)
    create = max(0, missing) if settled and not needed else 0
    return StandbyPlan(tuple(promoted), create, tuple(deletions), next_time(spec, broken, now))
