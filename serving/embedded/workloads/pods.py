"""Reads a Pod for its owner, and builds one from a template. Pure."""

import copy
import datetime as dt
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from serving.objects import Object, is_deleting
from serving.resources import names
from serving.resources.kinds import Kind
from serving.resources.kubernetes import conditions, container_statuses, owner_references, pod_phases

BURST_REPLICAS = 500
"""The most Pods that an owner creates in one step, which leaves the event loop time for all other work:
k8s.io/kubernetes/pkg/controller/replicaset."""


@dataclass(frozen=True)
class PodFacts:
    """The facts of a Pod for its owner's decisions. Times are UTC.

    `finished_at` is None until the phase is final. `attempt` is the number of a Job's attempt, else None.
    """

    name: str
    uid: str
    created: dt.datetime
    template_hash: str = ""
    phase: str = "Pending"
    ready: bool = False
    ready_since: dt.datetime | None = None
    terminating: bool = False
    finished_at: dt.datetime | None = None
    restarts: int = 0
    attempt: int | None = None
    standby: bool = False

    @property
    def finished(self) -> bool:
        """Whether its phase is final."""
        return self.phase in pod_phases.ENDED

    @property
    def active(self) -> bool:
        """Whether it runs or will run."""
        return not self.finished and not self.terminating

    def available_at(self, min_ready_seconds: int, now: dt.datetime) -> dt.datetime | None:
        """Return the time from which the Pod counts as available; None while it is not ready.

        After the clock was set back, the Pod may be ready since a time in the future: that delays nothing.
        """
        if not self.ready or self.ready_since is None:
            return None
        return now if self.ready_since > now else self.ready_since + dt.timedelta(seconds=min_ready_seconds)

    def available(self, min_ready_seconds: int, now: dt.datetime) -> bool:
        """Whether it is active and has been ready for long enough, as IsPodAvailable of
        k8s.io/kubernetes/pkg/api/v1/pod.
        """
        since = self.available_at(min_ready_seconds, now)
        return self.active and since is not None and since <= now


def read(pod: Mapping[str, Any]) -> PodFacts:
    """Read a stored Pod."""
    meta, status = pod["metadata"], pod.get("status") or {}
    ready = conditions.find(status.get("conditions"), "Ready")
    attempt = (meta.get("annotations") or {}).get(names.ATTEMPT_ANNOTATION, "")
    containers = status.get("containerStatuses") or []
    phase = status.get("phase") or "Pending"
    created = parse_time(meta.get("creationTimestamp")) or dt.datetime.fromtimestamp(0, dt.UTC)
    is_ready = ready is not None and ready.get("status") == "True"
    return PodFacts(
        name=meta["name"],
        uid=meta.get("uid", ""),
        created=created,
        template_hash=(meta.get("labels") or {}).get(names.POD_TEMPLATE_HASH_LABEL, ""),
        phase=phase,
        ready=is_ready,
        ready_since=(parse_time(ready.get("lastTransitionTime")) or created) if ready and is_ready else None,
        terminating=is_deleting(pod),
        finished_at=_finished_at(containers, created) if phase in pod_phases.ENDED else None,
        restarts=sum(int(c.get("restartCount") or 0) for c in container_statuses.of(status)),
        attempt=int(attempt) if attempt.isdecimal() else None,
        standby=is_standby(pod),
    )


def is_standby(pod: Mapping[str, Any]) -> bool:
    """Whether a Pod is a standby replica, which gets no traffic."""
    return (pod["metadata"].get("labels") or {}).get(names.STANDBY_LABEL) == "true"


def _finished_at(containers: list[Object], created: dt.datetime) -> dt.datetime:
    ends = (
        parse_time(((c.get("state") or {}).get("terminated") or {}).get("finishedAt")) for c in containers
    )
    return max((end for end in ends if end is not None), default=created)


def parse_time(text: str | None) -> dt.datetime | None:
    """Parse a stored time; None for None or an empty text."""
    return dt.datetime.fromisoformat(text) if text else None


def deletion_order(pods: Iterable[PodFacts], available: Container[str] = ()) -> list[PodFacts]:
    """Sort by the cost of a deletion, least first, as ActivePods of k8s.io/kubernetes/pkg/controller.

    Unavailable, not ready, pending, lately ready, often restarted and new Pods come first, in this order;
    `available` has the uids of available Pods.
    """
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


def build(
    kind: Kind,
    owner: Object,
    name: str,
    node: str,
    *,
    extra_labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return a Pod of `owner.spec.template`, owned by `owner` and bound to `node`."""
    template, meta = owner["spec"]["template"], owner["metadata"]
    template_meta = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**(template_meta.get("labels") or {}), **extra_labels},
            "annotations": {**(template_meta.get("annotations") or {}), **(annotations or {})},
            "ownerReferences": [owner_references.controller_reference(kind, owner)],
        },
        "spec": {**copy.deepcopy(template["spec"]), "nodeName": node},
    }
