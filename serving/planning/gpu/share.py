"""A share of a GPU, and what it is written as: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.objects import Object

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True)
class Share:
    """A share of one GPU; None where it is not limited."""

    memory: int | None = None
    """Bytes."""
    cores: int | None = None
    """Percent of its streaming multiprocessors, 1 to 100."""


@dataclass(frozen=True)
class Rendered:
    """What a mechanism gives for a share that was asked for: never less, and more only where its values are coarse."""

    granted: Share
    limits: Mapping[str, str] = field(default_factory=dict)
    """Resources of the container, as requests and limits."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the container."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Of the Pod."""
    claim: Object | None = None
    """Spec of the ResourceClaimTemplate (resource.k8s.io/v1) whose claim the container has."""
    enforced_if: tuple[str, ...] = ()
    """What must hold on the node, and cannot be seen from here, for the share to be really kept to."""


def up(amount: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not less."""
    return -(-amount // step) * step


def snapped(asked: Share, granted: Share) -> str:
    """Say what became of the values that had to be rounded up; empty where none had to."""
    said = []
    if asked.memory is not None and granted.memory != asked.memory:
        said.append(f"memory {asked.memory / MIB:g}Mi became {(granted.memory or 0) / MIB:g}Mi")
    if asked.cores is not None and granted.cores != asked.cores:
        said.append(f"cores {asked.cores}% became {granted.cores}%")
    return "; ".join(said)
