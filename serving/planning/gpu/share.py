"""A share of a GPU, and how a mechanism writes it into a Pod: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.objects import Object

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True)
class GpuShare:
    """A share of one GPU; None means no limit."""

    memory: int | None = None
    """Bytes."""
    cores: int | None = None
    """Percent of its streaming multiprocessors, 1 to 100."""


@dataclass(frozen=True)
class RenderedShare:
    """The granted share of a mechanism: the requested one, rounded up to the mechanism's steps."""

    granted: GpuShare
    limits: Mapping[str, str] = field(default_factory=dict)
    """Resources of the container, to be written as requests and as limits."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the container."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node selector of the Pod."""
    claim: Object | None = None
    """Spec of a ResourceClaimTemplate (resource.k8s.io/v1) whose claim the container uses."""
    enforced_if: tuple[str, ...] = ()
    """Conditions on the node under which the share is enforced; they cannot be checked from here."""


def round_up(amount: int, step: int) -> int:
    """Return the smallest multiple of `step` that is at least `amount`."""
    return -(-amount // step) * step


def describe_rounding(requested: GpuShare, granted: GpuShare) -> str:
    """Return a description of the values that were rounded up; empty if none was."""
    changes = []
    if requested.memory is not None and granted.memory != requested.memory:
        changes.append(f"memory {requested.memory / MIB:g}Mi became {(granted.memory or 0) / MIB:g}Mi")
    if requested.cores is not None and granted.cores != requested.cores:
        changes.append(f"cores {requested.cores}% became {granted.cores}%")
    return "; ".join(changes)
