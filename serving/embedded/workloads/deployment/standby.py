"""Decides about standby replicas: started Pods of a Deployment that get no traffic until promoted. Pure.

An annotation of the Deployment has their number; a label of the Pods keeps them out of EndpointSlices and out
of the Deployment's counts. A new replica is taken from them by removing the label; another standby Pod is
started once every serving replica is ready, so that its start takes no resources from those. Kubernetes has
no such thing.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.embedded.workloads.deployment.plan import DeploymentSpec, is_expired, next_time
from serving.embedded.workloads.pods import PodFacts
from serving.resources import names

MAX_STANDBYS = 100
"""The limit of an Inference's schema, applied to annotations that people write by hand."""


@dataclass(frozen=True)
class StandbyPlan:
    """Pods to promote, the number of standby Pods to create, Pods to delete, and when to plan again."""

    promote: tuple[PodFacts, ...] = ()
    create: int = 0
    delete: tuple[PodFacts, ...] = ()
    requeue_after: dt.timedelta | None = None


def count(deployment: Mapping[str, Any]) -> int:
    """Return the number of standby Pods of a Deployment; 0 where the annotation is no number."""
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
        spec: of the Deployment.
        now: UTC.
        kept: standby Pods to keep.
        needed: replicas that are about to be created.
        settled: whether every serving replica is ready.
    """
    living = [p for p in standbys if p.active and p.template_hash == spec.template_hash]
    # The order does not depend on how far the watch has come: a repeated plan takes the same Pods.
    ranked = sorted(living, key=lambda p: (not p.ready, p.created, p.name))
    promoted, rest = ranked[:needed], ranked[needed:]
    if spec.paused:
        return StandbyPlan(tuple(promoted))
    broken = [p for p in standbys if p.finished and not p.terminating]
    deletions = [p for p in standbys if p.active and p.template_hash != spec.template_hash]
    deletions += [p for p in broken if is_expired(p, now)] + rest[kept:]
    missing = kept - len(rest) - len(broken)
    create = max(0, missing) if settled and not needed else 0
    return StandbyPlan(tuple(promoted), create, tuple(deletions), next_time(spec, broken, now))
