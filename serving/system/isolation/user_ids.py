"""Leases user ids that no account has, so that processes of different owners cannot touch each other.

An id is never leased twice while its range lasts: the file has the end of the ids that may have been leased,
and every holder of the file takes blocks of ids beyond it. At the end of the range the ids begin again,
without those that a process has when their block is taken.
"""

import os
import random
from collections.abc import Iterable
from pathlib import Path

from serving import errors
from serving.system.files import atomic_file, locks

RANGE = range(1_879_048_192, 2_147_352_576)
"""Ids that no system assigns: above systemd's ids of containers, below its foreign ids
(https://systemd.io/UIDS-GIDS/)."""
SMALL_RANGE = range(32_768, 61_184)
"""In a user namespace that maps 65,536 ids: above accounts, below systemd's dynamic users."""
BLOCK = 1024
"""Ids that are taken from the file at a time, as each time is a synchronous write."""
SYSTEM_USER = 65_534
"""`nobody`, for processes that must have one user in common."""


def mapped(uid_map: str) -> range:
    """Return the range of ids to lease, those of `RANGE` or `SMALL_RANGE` that this user namespace maps.

    Args:
        uid_map: content of /proc/self/uid_map, user_namespaces(7).

    Raises:
        errors.Permanent: `NoUserIds`, it maps too few ids.
    """
    lines = [[int(number) for number in line.split()] for line in uid_map.splitlines()]
    for wanted in (RANGE, SMALL_RANGE):
        for inside, _, count in lines:
            part = range(max(wanted.start, inside), min(wanted.stop, inside + count))
            if len(part) >= BLOCK:
                return part
    raise errors.Permanent("NoUserIds", "this user namespace maps no ids for Pods: /proc/self/uid_map")


def in_use() -> set[int]:
    """Return the effective user ids of all processes: the owner of /proc/PID, of any process."""
    ids: set[int] = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                ids.add(entry.stat().st_uid)
            except (FileNotFoundError, ProcessLookupError):
                continue
    return ids


class UserIds:
    """Leases user ids of one machine; several processes may share the file."""

    def __init__(self, file: Path) -> None:
        """`file` need not exist: then the first block is a random one, apart from another installation's."""
        self._file = file
        self._ids: list[int] = []
        self._range = mapped(Path("/proc/self/uid_map").read_text())

    def __contains__(self, uid: int) -> bool:
        return uid in self._range

    def new(self, taken: Iterable[int] = ()) -> int:
        """Return an id that is not in `taken`, and that no process had when its block was taken.

        Args:
            taken: ids of the caller that may have no process at this time, such as that of a Pod between two
                runs.

        Raises:
            errors.Temporary: `NoUserIds`, all ids are taken.
            OSError: the file cannot be written.
        """
        unusable = set(taken)
        blocks = len(self._range) // BLOCK
        while True:
            while self._ids:
                uid = self._ids.pop()
                if uid not in unusable:
                    return uid
            if blocks == 0:
                raise errors.Temporary("NoUserIds", f"all user ids of {self._range} are taken")
            blocks -= 1
            block = self._take_block()
            running = in_use()
            self._ids = [uid for uid in block if uid not in running]

    def _take_block(self) -> list[int]:
        """Record the next block as taken, durably; return its ids, the lowest last."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            locks.lock_descriptor(directory)
            try:
                start = int(self._file.read_text())
            except (FileNotFoundError, ValueError):
                start = random.choice(self._range)  # noqa: S311 no secret
            if start not in self._range or start + BLOCK > self._range.stop:
                start = self._range.start
            atomic_file.replace(self._file, str(start + BLOCK).encode(), synced=True)
        finally:
            os.close(directory)
        return list(reversed(range(start, start + BLOCK)))
