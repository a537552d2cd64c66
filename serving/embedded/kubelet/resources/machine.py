"""What this machine is, in words and numbers: found out once. A measured curve is only worth something beside it."""

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """This machine."""

    cpu: str
    """Model of its processor."""
    cores: int
    """That this process may use."""
    memory: int
    """Bytes."""


@cache
def found() -> Machine:
    """Return this machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(_processor(), len(os.sched_getaffinity(0)), memory)


def _processor() -> str:
    """Return the processor's model; where /proc/cpuinfo does not name it (as on some ARM machines), its architecture."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()
