"""Which process is meant: (boot id, pid, start time), so that a recycled pid is never taken for ours.

A pid alone says nothing after the process has died or the machine was restarted. Nothing here signals a
process whose identity does not match.
"""

import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 21 - 2  # proc(5): field 22 of stat is the 20th behind the closing parenthesis of field 2
_STATE = 0


@dataclass(frozen=True)
class Identity:
    """One process, for all time."""

    boot_id: str
    pid: int
    start_time: int
    """Clock ticks after boot, from proc(5) stat."""


def of(pid: int) -> Identity | None:
    """Return the identity of a running process; None where there is none, or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot_id = _BOOT_ID.read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[_STATE] in "ZX":
        return None
    return Identity(boot_id, pid, int(fields[_START_TIME]))


def own() -> Identity:
    """Return this process's identity."""
    found = of(os.getpid())
    assert found is not None
    return found


def alive(identity: Identity) -> bool:
    """Whether exactly this process still runs."""
    return of(identity.pid) == identity


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process; False where it is gone.

    Where the kernel has pidfds the check and the signal cannot be separated by a recycled pid.
    """
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        if not alive(identity):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def write(path: Path, identity: Identity, **more: Any) -> None:
    """Record an identity and what else is known of the process, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(orjson.dumps({**asdict(identity), **more}))
    fresh.replace(path)


def read(path: Path) -> tuple[Identity, dict[str, Any]] | None:
    """Return what was recorded; None where nothing usable was."""
    try:
        found = orjson.loads(path.read_bytes())
        return Identity(found.pop("boot_id"), found.pop("pid"), found.pop("start_time")), found
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, AttributeError):
        return None
