"""The bounds of the memory that a replica uses for receiving and decoding requests."""

from dataclasses import dataclass
from pathlib import Path

from serving.runtimes import cgroups
from serving.settings import RuntimeSettings

_LEAST = 16 * 1024 * 1024
"""Least bound in bytes: ordinary requests are answered however little memory is free."""


@dataclass(frozen=True)
class RequestMemory:
    """Bounds, in bytes, of the memory of requests that are not answered yet."""

    decoding: int
    """Bound of the tensors of all decoded requests plus the estimate (`decoding_memory`) of the next one."""
    bodies: int
    """Bound of the size of all received bodies together."""


def bounds(settings: RuntimeSettings, reserved: int = 0) -> RequestMemory:
    """Return the bounds of this process, whose model is loaded and counts as used memory.

    Args:
        settings: the greatest value of either bound.
        reserved: bytes that the process will use beside requests, and does not use yet.
    """
    return shares(settings.request_memory_bytes, cgroups.memory_limit(), private_memory() + reserved)


def shares(most: int, limit: int | None, used: int) -> RequestMemory:
    """Return the bounds of a process: of its free memory half for decoding, and a quarter for bodies.

    The other quarter is for predictions and answers.

    Args:
        most: greatest value of either bound, in bytes.
        limit: the process's memory limit in bytes; None without a limit.
        used: bytes of the limit in use.
    """
    if limit is None:
        return RequestMemory(most, most)
    free = limit - used
    return RequestMemory(*(min(most, max(_LEAST, share)) for share in (free // 2, free // 4)))


def private_memory(smaps: Path = Path("/proc/self/smaps_rollup")) -> int:
    """Return the bytes of this process's private memory; 0 if the kernel does not report them.

    Pages that a forked process shares with its zygote are left out, as they are charged to the zygote.
    """
    try:
        lines = smaps.read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
