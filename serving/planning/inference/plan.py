"""The plan of an Inference: its actions in order, its status and its Events. Values only.

If the controller is killed after any prefix of the actions, the next plan has the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.objects import Object
from serving.resources.kinds import Kind
from serving.resources.kubernetes.events import EventToEmit


@dataclass(frozen=True)
class Ensure:
    """Apply the object by server-side apply; a new object with `at_creation` is created by POST."""

    kind: Kind
    object: Object
    at_creation: Object = field(default_factory=dict)
    """An object with the fields of `spec` that only a new object gets; another writer changes them later."""
    claim_template: Object | None = None
    """An immutable ResourceClaimTemplate that must exist before the object is created."""


@dataclass(frozen=True)
class PutBackTemplate:
    """Replace the whole Pod template of a revision's Deployment, which others have changed."""

    name: str
    template: Object
    edits: Mapping[str, tuple[str, ...]]
    """Field manager → paths that it wrote; empty if fields are only missing."""


@dataclass(frozen=True)
class RemoveChild:
    """Delete the object with this uid; with `foreground` it stays until its dependents are gone."""

    kind: Kind
    name: str
    uid: str
    foreground: bool = False


@dataclass(frozen=True)
class SetFinalizers:
    """Replace the Inference's finalizers unless the object has changed since it was read."""

    finalizers: tuple[str, ...]


Action = Ensure | PutBackTemplate | RemoveChild | SetFinalizers


@dataclass(frozen=True)
class InferencePlan:
    """Actions in order, then the status."""

    actions: tuple[Action, ...] = ()
    status: Object | None = None
    """The status once the actions are done; None if it is stored already."""
    status_may_wait: bool = False
    """Whether the status only reports progress, so that it is worth writing only if it lasts."""
    waits_for_gpu_nodes: bool = False
    """Whether an arm's GPU mechanism is assumed until a node has the resources of one: no event says so."""
    events: tuple[EventToEmit, ...] = ()
