"""The busy time of this machine's cores, from /proc/stat; unknown for replicas on other machines."""

import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT = 3, 4
"""Columns of a core's line, without its name: https://docs.kernel.org/filesystems/proc.html, 1.7."""


def busy_seconds(text: str, cores: Sequence[int], ticks_per_second: int) -> float | None:
    """Return the seconds that these cores have worked since boot; None if /proc/stat lacks one of them.

    Args:
        text: the content of /proc/stat.
        cores: their numbers.
        ticks_per_second: the unit of /proc/stat.
    """
    lines = {
        words[0]: [int(word) for word in words[1:]] for words in map(str.split, text.splitlines()) if words
    }
    core_times = [lines.get(f"cpu{core}") for core in cores]
    if not all(core_times):
        return None
    # The last two columns, time of guests, are included in the first two.
    worked = sum(sum(times[:8]) - times[_IDLE] - times[_IOWAIT] for times in core_times if times)
    return worked / ticks_per_second


def busy_seconds_at(address: str, cores: Sequence[int]) -> float | None:
    """Return the seconds that these cores have worked since boot; None if they are of another machine.

    A replica on this machine has a loopback address.
    """
    if not ipaddress.ip_address(address).is_loopback:
        return None
    try:
        return busy_seconds(_STAT.read_text(), cores, os.sysconf("SC_CLK_TCK"))
    except OSError:
        return None
