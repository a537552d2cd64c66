"""What the Inference planner reads, and what it asks for: values only.

`World` is one Inference with everything that belongs to it, as the caches have it; `Plan` is a list of writes
in the order in which they must happen. Killed after any prefix of them, the next plan asks for the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serving.objects import Object
from serving.resources.events import EventToEmit
from serving.resources.kinds import Kind


@dataclass(frozen=True)
class Problem:
    """Why something is not as it should be: a condition's reason and a message for people."""

    reason: str
    message: str


@dataclass(frozen=True)
class World:
    """One Inference and its surroundings; mappings are by object name."""

    inference: Object
    model_versions: Mapping[str, Object]
    deployments: Mapping[str, Object]
    services: Mapping[str, Object]
    autoscalers: Mapping[str, Object]
    route: Object | None
    gateways: frozenset[str]
    """Names of the gateways that are alive: those whose word counts."""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """What probing a backend said: empty for proven, else what went wrong."""
    pods: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """The Pods of each revision."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Revisions whose Deployment the API has just refused for good, with its words."""


@dataclass(frozen=True)
class Ensure:
    """Apply the object; `at_creation` is added to it where it does not exist yet, and never afterwards."""

    kind: Kind
    object: Object
    at_creation: Object = field(default_factory=dict)
    claim_template: Object | None = None
    """A ResourceClaimTemplate that must be there before it is created; it never changes."""


@dataclass(frozen=True)
class Remove:
    """Delete this very object; with `foreground` it stays until what it owns is gone."""

    kind: Kind
    name: str
    uid: str
    foreground: bool = False


@dataclass(frozen=True)
class SetFinalizers:
    """Replace the Inference's finalizers, if nobody else changed it meanwhile."""

    finalizers: tuple[str, ...]


Action = Ensure | Remove | SetFinalizers


@dataclass(frozen=True)
class Probe:
    """GET these paths of a backend through the gateway's private listener."""

    backend: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What to do now: actions in order, then status, then probes (whose verdicts make another plan)."""

    actions: tuple[Action, ...] = ()
    status: Object | None = None
    """As of after the actions; None where it is written already."""
    status_may_wait: bool = False
    """Whether the status is worth writing only if it lasts: it says that things are on their way, and no more."""
    probes: tuple[Probe, ...] = ()
    events: tuple[EventToEmit, ...] = ()


def covers(have: Any, want: Any) -> bool:
    """Whether every field of `want` is in `have` with that value; what servers add to `have` does not count."""
    if have == want:  # most of it is, and this is asked at every look
        return True
    if isinstance(want, dict):
        return isinstance(have, dict) and all(covers(have.get(key), value) for key, value in want.items())
    if isinstance(want, list) and isinstance(have, list) and len(have) == len(want):
        return all(map(covers, have, want))
    return False
