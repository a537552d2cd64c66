"""A share of a GPU, and the fields of a Pod that a sharing mechanism (`mps`, `mig`, `hami`, `ack` or `dra`)
renders for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.objects import Object

Mechanism = Literal["mps", "mig", "hami", "ack", "dra"]
"""The mechanisms that enforce a share."""
MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True)
class GpuShare:
    """A share of one GPU; None means no limit."""

    memory: int | None = None
    """Bytes."""
    cores: int | None = None
    """Percent of the GPU's streaming multiprocessors, 1 to 100."""


@dataclass(frozen=True)
class RenderedShare:
    """A share as one mechanism grants it, and the fields of the Pod that request it."""

    granted: GpuShare
    """The requested share, rounded up to the mechanism's steps."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Extended resources of the container, such as `nvidia.com/gpu: 1`, for its requests and its limits."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the container."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node selector of the Pod."""
    claim: Object | None = None
    """Spec of a ResourceClaimTemplate (resource.k8s.io/v1) whose claim the container uses."""
    enforced_if: tuple[str, ...] = ()
    """Conditions on the node under which the mechanism enforces the share. The API does not
    show whether a node meets them, so the Pod's annotation lists them for the user."""


def round_up(amount: int, step: int) -> int:
    """Return the smallest multiple of `step` that is at least `amount`."""
    return -(-amount // step) * step


def describe_rounding(requested: GpuShare, granted: GpuShare) -> str:
    """Return a text about each requested amount that the mechanism rounded up; empty if there is none."""
    changes = []
    if requested.memory is not None and granted.memory != requested.memory:
        assert granted.memory is not None  # every mechanism grants a limit where one is requested
        changes.append(f"memory {_quantity(requested.memory)} became {_quantity(granted.memory)}")
    if requested.cores is not None and granted.cores != requested.cores:
        changes.append(f"cores {requested.cores}% became {granted.cores}%")
    return "; ".join(changes)


def _quantity(memory: int) -> str:
    """Return an exact quantity of memory: in MiB if it is a whole number of them, else in bytes."""
    return str(memory) if memory % MIB else f"{memory // MIB}Mi"
