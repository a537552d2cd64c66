"""Processes and memory as /proc shows them. Imports little, as `atomic_file`."""

from __future__ import annotations

import os

STATE = 0
"""Index in `stat`; proc(5) has it as field 3."""
PARENT = 1
THREADS = 17
"""Number of threads that have not ended; 1 in a zombie."""
START_TIME = 19
"""In clock ticks since boot."""
ARGUMENTS_START, ARGUMENTS_END = 45, 46
"""Addresses of the command line."""


def boot_id() -> str:
    """Return the identity of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def available_memory() -> int | None:
    """Return the bytes of memory that are available without paging; None if unknown."""
    try:
        with open("/proc/meminfo") as file:
            lines = file.readlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; None if there is no such process."""
    return _fields(f"/proc/{pid}/stat")


def _fields(path: str) -> list[str] | None:
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid: int) -> int:
    """Return the process's start in clock ticks since boot, 0 if it is gone; a zombie is not."""
    fields = stat(pid)
    return 0 if fields is None else int(fields[START_TIME])


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def processes() -> list[int]:
    """Return the ids of all processes that run now."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def has_runnable_thread(pid: int) -> bool:
    """Return whether a thread of a process runs or waits for a processor: it is busy, and not stuck."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for thread in threads:
        fields = _fields(f"/proc/{pid}/task/{thread}/stat")
        if fields is not None and fields[STATE] == "R":
            return True
    return False


def system_calls(pid: int) -> dict[int, int]:
    """Return the numbers of system calls for input and output of the threads that compute, by thread.

    Empty if the process has ended, or the kernel does not count them.
    """
    calls = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            fields = _fields(f"/proc/{pid}/task/{thread}/stat")
            if fields is not None and fields[STATE] == "R":
                with open(f"/proc/{pid}/task/{thread}/io") as file:
                    counts = dict(line.split(": ") for line in file)
                calls[int(thread)] = int(counts["syscr"]) + int(counts["syscw"])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return calls
