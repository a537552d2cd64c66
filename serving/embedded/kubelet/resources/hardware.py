"""The hardware of this machine: the context of measured figures on the node's metrics page, and the memory
from which the OOM scores of containers follow.
"""

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from serving.system import procfs


@dataclass(frozen=True)
class Hardware:
    """The hardware of a machine."""

    cpu: str
    """The model of its processor."""
    cores: int
    """The number of cores that this process may use."""
    memory: int
    """The size of its memory in bytes."""


@cache
def this_hardware() -> Hardware:
    """Return the hardware of this machine."""
    return Hardware(_processor(), len(os.sched_getaffinity(0)), procfs.total_memory())


def _processor() -> str:
    """Return the processor's model, or its architecture where /proc/cpuinfo has none (some ARM machines)."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()
