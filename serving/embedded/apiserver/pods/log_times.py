"""When the lines of a log were written: the index beside it, and what is made of it.

Beside `N.log` the container shim appends to `N.log.times`, before each piece of output, 16 bytes: where in the log the
piece begins, and the time in nanoseconds since 1970 (both little-endian). The first record is the log's inode
instead, and 0: both files are renamed when they grow, one after the other, and so they are never taken for the
wrong pair.
"""

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

_RECORD = struct.Struct("<qq")
SECOND = 1_000_000_000


class Times:
    """When each byte of one log file was written."""

    def __init__(self, index: BinaryIO) -> None:
        self._index = index
        self._rest = b""
        self._places, self._moments = array("q"), array("q")

    def refresh(self) -> None:
        """Read what has been added; must be called after the log was read, whose pieces come later than their records."""
        data = self._rest + self._index.read()
        whole = len(data) - len(data) % _RECORD.size
        self._rest = data[whole:]
        for place, moment in _RECORD.iter_unpack(data[:whole]):
            self._places.append(place)
            self._moments.append(moment)

    def at(self, offset: int) -> int | None:
        """Return when the byte at the offset was written, in nanoseconds since 1970; None where it is not known."""
        found = bisect_right(self._places, offset) - 1
        return self._moments[found] if found >= 0 else None

    def close(self) -> None:
        self._index.close()


def find(path: Path, log: BinaryIO) -> Times | None:
    """Return the times of an open log, whose name was `path` or is about to be; None where it has none."""
    inode = os.fstat(log.fileno()).st_ino
    for name in (f"{path.name}.times", f"{path.name}.1.times"):
        try:
            index = path.with_name(name).open("rb")
        except FileNotFoundError:
            continue
        if index.read(_RECORD.size) == _RECORD.pack(inode, 0):
            return Times(index)
        index.close()
    return None


class Filter:
    """Leaves out the lines from before a moment, and puts its time before each of the others."""

    def __init__(self, since: int | None, *, show: bool) -> None:
        """Start at the beginning of a line.

        Args:
            since: nanoseconds since 1970, or None.
            show: whether times are put before lines.
        """
        self._since, self._show = since, show
        self._fresh, self._wanted = True, True

    def cut(self, offset: int, piece: bytes, at: Callable[[int], int | None]) -> bytes:
        """Return what is left of a piece of the log that begins at `offset`."""
        out: list[bytes] = []
        start = 0
        while start < len(piece):
            end = piece.find(b"\n", start) + 1 or len(piece)
            if self._fresh:
                moment = at(offset + start)
                self._wanted = moment is None or self._since is None or moment >= self._since
                if self._wanted and self._show and moment is not None:
                    out.append(_text(moment))
            if self._wanted:
                out.append(piece[start:end])
            self._fresh = piece[end - 1 : end] == b"\n"
            start = end
        return b"".join(out)


def _text(moment: int) -> bytes:
    """RFC 3339 with nine digits, as kubelet's."""
    seconds, rest = divmod(moment, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z ".encode()
