"""Standby replicas: Pods of a Deployment that are started and get no traffic, until more replicas are wanted. Pure.

How many is an annotation of the Deployment; which Pods are some is a label of theirs, which keeps them out of EndpointSlices
and out of the Deployment's counts. A replica that is wanted is taken from them by taking its label off; the next one is
started once every replica that serves is ready, so that it takes nothing from those. Kubernetes has no such thing.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.embedded.workloads.deployment.plan import Wanted, is_expired, next_look
from serving.embedded.workloads.pods import PodState
from serving.resources import names

MOST = 100
"""As the schema of Inferences says; what people write by hand is held to it too."""


@dataclass(frozen=True)
class Plan:
    """Pods that become replicas, how many standby Pods to create, which to delete, and when to look again."""

    promote: tuple[PodState, ...] = ()
    create: int = 0
    delete: tuple[PodState, ...] = ()
    requeue_after: dt.timedelta | None = None


def count(deployment: Mapping[str, Any]) -> int:
    """Return how many a Deployment asks for; what is no number of Pods is none."""
    said = (deployment["metadata"].get("annotations") or {}).get(names.STANDBY_ANNOTATION, "")
    return min(int(said), MOST) if said.isdecimal() else 0


def plan(
    standbys: Sequence[PodState], want: Wanted, now: dt.datetime, *, kept: int, needed: int, settled: bool
) -> Plan:
    """Return the next step.

    Args:
        standbys: the Deployment's Pods that have the label.
        want: what it asks for besides.
        now: UTC.
        kept: standby Pods to keep.
        needed: replicas that are about to be created.
        settled: whether every replica that serves is ready.
    """
    living = [p for p in standbys if p.active and p.template_hash == want.template_hash]
    # In an order that a watch which lags behind does not change: asked again, the same Pods are taken.
    ranked = sorted(living, key=lambda p: (not p.ready, p.created, p.name))
    promoted, rest = ranked[:needed], ranked[needed:]
    if want.paused:
        return Plan(tuple(promoted))
    broken = [p for p in standbys if p.finished and not p.terminating]
    doomed = [p for p in standbys if p.active and p.template_hash != want.template_hash]
    doomed += [p for p in broken if is_expired(p, now)] + rest[kept:]
    missing = kept - len(rest) - len(broken)
    create = max(0, missing) if settled and not needed else 0
    return Plan(tuple(promoted), create, tuple(doomed), next_look(want, broken, now))
