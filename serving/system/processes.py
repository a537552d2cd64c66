"""Processes by their identity (boot id, pid, start time), so that a recycled pid is never taken for ours.

A pid alone identifies no process after its exit or a restart of the machine. Nothing here signals a
process whose identity does not match.
"""

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from serving.system import procfs
from serving.system.files import atomic_file

_BOOT_TIME = re.compile(r"^btime (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class ProcessIdentity:
    """One process; no other has had, or will have, the same identity."""

    boot_id: str
    pid: int
    start_time: int
    """Clock ticks after boot, from proc(5) stat."""

    def is_older_than(self, other: "ProcessIdentity") -> bool:
        """Whether it was started before another process of the same boot."""
        return self.boot_id == other.boot_id and self.start_time < other.start_time

    def started_at(self) -> float:
        """Return when it was started, in Unix seconds: the boot time (`btime` of proc(5)) plus the start."""
        boot_time = _BOOT_TIME.search(Path("/proc/stat").read_text())
        seconds_after_boot = self.start_time / os.sysconf("SC_CLK_TCK")
        return seconds_after_boot + (int(boot_time[1]) if boot_time is not None else 0)


def identity_of(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process; None where there is none, it is a zombie, or /proc hides it.

    /proc shows the state Z as soon as the first thread has ended. The process still runs, and holds its
    sockets, until the other threads have ended too.
    """
    fields = procfs.stat(pid)
    if fields is None or (fields[procfs.STATE] in "ZX" and int(fields[procfs.THREADS]) <= 1):
        return None
    return ProcessIdentity(procfs.boot_id(), pid, int(fields[procfs.START_TIME]))


def of_session(leader: ProcessIdentity) -> set[ProcessIdentity]:
    """Return the processes of the session that this process leads, or led until it ended.

    While one of them runs, the kernel gives the leader's pid to no other process.
    """
    boot_id = procfs.boot_id()
    members = set()
    for pid in procfs.processes() if leader.boot_id == boot_id else ():
        fields = procfs.stat(pid)
        if fields is None or int(fields[procfs.SESSION]) != leader.pid:
            continue
        member = ProcessIdentity(boot_id, pid, int(fields[procfs.START_TIME]))
        if member.start_time < leader.start_time or (pid == leader.pid and member != leader):
            return set()  # the session of another process, which had the pid before or has it now
        if is_alive(member):
            members.add(member)
    return members


def own_identity() -> ProcessIdentity:
    """Return this process's identity."""
    own = identity_of(os.getpid())
    assert own is not None
    return own


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly this process still runs."""
    return identity_of(identity.pid) == identity


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """Return a pidfd of exactly this process, for the caller to close; None where it is gone.

    The kernel ties it to the process, so that no recycled pid comes between this check and a later use.

    Raises:
        OSError: no descriptor or memory is left; whether the process runs is then unknown.
    """
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError:  # the pid may be a thread's now, for which the kernel has another error than ESRCH
        if is_alive(identity):
            raise
        return None
    is_same = False
    try:
        is_same = is_alive(identity)
    finally:
        if not is_same:
            os.close(pidfd)
    return pidfd if is_same else None


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal exactly this process; False where it is gone."""
    pidfd = open_pidfd(identity)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def write_identity(path: Path, identity: ProcessIdentity, **extra: Any) -> None:
    """Record an identity, and the caller's other fields of the process, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.replace(path, encoded(identity, **extra))


def encoded(identity: ProcessIdentity, **extra: Any) -> bytes:
    """Return the record that `read_identity` reads."""
    return orjson.dumps({**asdict(identity), **extra})


def read_identity(path: Path) -> tuple[ProcessIdentity, dict[str, Any]] | None:
    """Return the recorded identity and the other recorded fields; None if there is no valid record."""
    try:
        record = orjson.loads(path.read_bytes())
        identity = ProcessIdentity(record.pop("boot_id"), record.pop("pid"), int(record.pop("start_time")))
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, AttributeError, TypeError, ValueError):
        return None
    return identity, record


def read_running(path: Path) -> tuple[ProcessIdentity, dict[str, Any]] | None:
    """Return the record of a process that still runs, as `read_identity`."""
    record = read_identity(path)
    return record if record is not None and is_alive(record[0]) else None


def set_command_line(argv: Sequence[str]) -> None:
    """Let `ps` show this command for this process, cut to the length of the one that it was started with."""
    import ctypes  # noqa: PLC0415 only zygotes' children need it

    fields = procfs.stat(os.getpid())
    assert fields is not None
    start, end = int(fields[procfs.ARGUMENTS_START]), int(fields[procfs.ARGUMENTS_END])
    text = b"\0".join(word.encode() for word in argv)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
