"""Processes and memory as /proc shows them. Imports little, as every container shim imports it."""

from __future__ import annotations

import os

STATE = 0
"""Index in the result of `stat`, as the constants below; proc(5) counts from 1, and has it as field 3."""
PARENT = 1
SESSION = 3
"""The id of the process that has made its session."""
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


def total_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int | None:
    """Return the bytes of memory that are available without paging; None if unknown."""
    try:
        with open("/proc/meminfo") as file:
            lines = file.readlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; None if there is no such process, or if /proc
    hides it: another user's, by the option hidepid of proc(5).
    """
    return _fields(f"/proc/{pid}/stat")


def _fields(path: str) -> list[str] | None:
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last by `hidepid=1`
        return None


def start_time(pid: int) -> int:
    """Return a process's start in clock ticks since boot, also of a zombie; 0 if there is no process."""
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


def computing_threads(pid: int) -> dict[int, int]:
    """Return the threads of a process that run or wait for a processor, and the system calls of each so far.

    The result has the system calls for input and output by thread id; 0 if the kernel does not count them. It
    is empty if the process has ended.
    """
    threads = {}
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    for name in names:
        fields = _fields(f"/proc/{pid}/task/{name}/stat")
        if fields is not None and fields[STATE] == "R":
            threads[int(name)] = _system_calls(f"/proc/{pid}/task/{name}/io")
    return threads


def _system_calls(path: str) -> int:
    try:
        with open(path) as file:
            counts = dict(line.split(": ") for line in file)
        return int(counts["syscr"]) + int(counts["syscw"])
    except OSError:
        return 0
