"""The log file of a container, which its shim writes.

Imports little of the standard library, as one shim runs beside every replica.
"""

from __future__ import annotations

import contextlib
import os
import time

from serving.system.files import regular_file

RETRY_SECONDS = 1.0
"""Between attempts to open a log that cannot be opened."""


class ContainerLog:
    """A log file, rotated to `FILE.1` before it and its index of times together exceed the limit.

    The index `FILE.times` has records of two 64-bit little-endian integers: first the log's inode and 0, then
    for each write its offset in the log and its time in nanoseconds since 1970. The API server reads it
    (`serving.embedded.apiserver.pods.log_times`). Where a file of another type lies at one of these paths,
    output or its times are lost, not the replica.
    """

    def __init__(self, path: str, limit: int) -> None:
        """Open the log, and continue one that exists; `limit` is in bytes."""
        self._path, self._limit = path, limit
        self._open()

    def _open(self) -> None:
        """Open the log and a new index; the descriptor of a file that cannot be opened is -1."""
        self._log_fd = self._index_fd = -1
        self._log_bytes = self._index_bytes = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._retry_at = time.monotonic() + RETRY_SECONDS
        with contextlib.suppress(OSError):
            self._log_fd = regular_file.open_fd(self._path, flags)
            status = os.fstat(self._log_fd)
            self._log_bytes = status.st_size
            self._index_fd = regular_file.open_fd(self._path + ".times", flags | os.O_TRUNC)
            self._index(status.st_ino, 0)

    def _index(self, first: int, second: int) -> None:
        """Append a record to the index."""
        record = first.to_bytes(8, "little") + second.to_bytes(8, "little")
        with contextlib.suppress(OSError):
            self._index_bytes += os.write(self._index_fd, record)

    def write(self, data: bytes) -> None:
        """Append; on a full disk the output is lost, not the replica, until there is room again."""
        if min(self._log_fd, self._index_fd) < 0 and time.monotonic() >= self._retry_at:
            self.close()
            self._open()
        if self._log_bytes and self._log_bytes + self._index_bytes + len(data) > self._limit:
            try:
                os.replace(self._path, self._path + ".1")
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._log_fd, 0)  # the limit holds nevertheless
            self.close()
            with contextlib.suppress(OSError):
                os.replace(self._path + ".times", self._path + ".1.times")
            self._open()
        self._index(self._log_bytes, time.clock_gettime_ns(time.CLOCK_REALTIME))
        with contextlib.suppress(OSError):
            self._log_bytes += os.write(self._log_fd, data)

    def close(self) -> None:
        """Close the log and its index."""
        for fd in (self._log_fd, self._index_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
