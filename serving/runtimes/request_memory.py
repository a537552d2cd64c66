"""The memory that a replica has for the requests that it reads and decodes."""

from dataclasses import dataclass
from pathlib import Path

from serving.runtimes import cgroups
from serving.settings import RuntimeSettings

_LEAST = 16 * 1024 * 1024
"""However little is free, ordinary requests are answered."""


@dataclass(frozen=True)
class RequestMemory:
    """Bounds in bytes."""

    decoding: int
    """Of the requests that are decoded, until they are answered; also of one alone."""
    bodies: int
    """Of the bodies that have been received, until they are answered."""


def bounds(settings: RuntimeSettings) -> RequestMemory:
    """Return the bounds of this process, whose model is loaded.

    Of the memory that its limit leaves free, one half is for decoding and a quarter for bodies. The rest is
    for predictions and answers.
    """
    return shares(settings.request_memory_bytes, cgroups.memory_limit(), private_memory())


def shares(most: int, limit: int | None, used: int) -> RequestMemory:
    """Return the bounds of a process that uses so much of its limit."""
    if limit is None:
        return RequestMemory(most, most)
    free = limit - used
    return RequestMemory(*(min(most, max(_LEAST, share)) for share in (free // 2, free // 4)))


def private_memory(smaps: Path = Path("/proc/self/smaps_rollup")) -> int:
    """Return the bytes that are charged to this process alone: a fork shares others with its zygote."""
    try:
        lines = smaps.read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
