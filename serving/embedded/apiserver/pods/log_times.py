"""Times of log lines: the index beside a log, and filters by time.

Before each chunk of output in `N.log` the container shim appends 16 bytes to `N.log.times`: the chunk's
offset in the log and the time in nanoseconds since 1970, both little-endian. The first record is the log's
inode and 0: the two files are rotated one after the other, and the inode shows which belong together.
"""

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from serving.system.files import regular_file

_RECORD = struct.Struct("<qq")
SECOND = 1_000_000_000
"""In nanoseconds."""


class LogTimes:
    """The write times of one log file."""

    def __init__(self, index: BinaryIO) -> None:
        self._index = index
        self._incomplete = b""
        self._offsets, self._times = array("q"), array("q")

    def refresh(self) -> None:
        """Read the new records. Call this after reading the log: a record is written before its chunk."""
        data = self._incomplete + self._index.read()
        complete = len(data) - len(data) % _RECORD.size
        self._incomplete = data[complete:]
        for offset, time in _RECORD.iter_unpack(data[:complete]):
            self._offsets.append(offset)
            self._times.append(time)

    def at(self, offset: int) -> int | None:
        """Return the write time of the byte at the offset, in nanoseconds since 1970; None for a byte that is
        older than the index: a shim that continues a log begins a new index.
        """
        index = bisect_right(self._offsets, offset) - 1
        return self._times[index] if index >= 0 else None

    def close(self) -> None:
        self._index.close()


def find(path: Path, log: BinaryIO) -> LogTimes | None:
    """Return the times of the open log, if any; it was at `path` and may have been rotated since."""
    inode = os.fstat(log.fileno()).st_ino
    for name in (f"{path.name}.times", f"{path.name}.1.times"):
        try:
            index = regular_file.open_binary(path.with_name(name))
        except OSError:  # missing, or a file of another type
            continue
        if index.read(_RECORD.size) == _RECORD.pack(inode, 0):
            return LogTimes(index)
        index.close()
    return None


class LineFilter:
    """Drops lines older than a moment, and prefixes the others with their times, chunk by chunk.

    A line without a known time is shown, without a prefix.
    """

    def __init__(self, since: int | None, *, show: bool) -> None:
        """Start at the beginning of a line.

        Args:
            since: nanoseconds since 1970, or None.
            show: whether lines are prefixed with their times.
        """
        self._since, self._show = since, show
        self._at_line_start = True
        self._is_included = True
        """Whether the current line, which may continue in the next chunk, is shown."""

    def apply(self, offset: int, chunk: bytes, at: Callable[[int], int | None]) -> bytes:
        """Return the lines to show of a chunk.

        Args:
            offset: of the chunk in the log.
            chunk: the next bytes of the log; they may begin and end within a line.
            at: `LogTimes.at`, which returns the write time at an offset in the log.
        """
        shown: list[bytes] = []
        start = 0
        while start < len(chunk):
            end = chunk.find(b"\n", start) + 1 or len(chunk)
            if self._at_line_start:
                time = at(offset + start)
                self._is_included = time is None or self._since is None or time >= self._since
                if self._is_included and self._show and time is not None:
                    shown.append(_format_time(time))
            if self._is_included:
                shown.append(chunk[start:end])
            self._at_line_start = chunk[end - 1 : end] == b"\n"
            start = end
        return b"".join(shown)


def _format_time(time: int) -> bytes:
    """Return the time in RFC 3339 with nine digits of a second, as kubelet does."""
    seconds, nanoseconds = divmod(time, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z ".encode()
