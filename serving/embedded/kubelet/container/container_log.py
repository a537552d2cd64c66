"""The log file of a container, which its shim writes.

Imports little of the standard library, as one shim runs beside every replica.
"""

from __future__ import annotations

import contextlib
import os
import time

from serving.system import regular_file

RETRY_SECONDS = 1.0
"""Between attempts to open a log that cannot be opened."""


class ContainerLog:
    """A log file, rotated to `FILE.1` before it and its index of times together exceed the limit.

    The index `FILE.times` has the time of every write: see `serving.embedded.apiserver.pods.log_times`.
    Where a file of another type lies at one of these paths, output is lost, not the replica.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path, self._limit = path, limit
        self._open()

    def _open(self) -> None:
        self._fd, self._size, self._indexed, self._times = -1, 0, 0, -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._retry_at = time.monotonic() + RETRY_SECONDS
        with contextlib.suppress(OSError):
            self._fd = regular_file.open_fd(self._path, flags)
            status = os.fstat(self._fd)
            self._size = status.st_size
            self._times = regular_file.open_fd(self._path + ".times", flags | os.O_TRUNC)
            self._index(status.st_ino, 0)

    def _index(self, *numbers: int) -> None:
        with contextlib.suppress(OSError):
            self._indexed += os.write(self._times, b"".join(n.to_bytes(8, "little") for n in numbers))

    def write(self, data: bytes) -> None:
        """Append; on a full disk the output is lost, not the replica, until there is room again."""
        if min(self._fd, self._times) < 0 and time.monotonic() >= self._retry_at:
            self.close()
            self._open()
        if self._size and self._size + self._indexed + len(data) > self._limit:
            try:
                os.replace(self._path, self._path + ".1")
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, 0)  # the bound holds nevertheless
            self.close()
            with contextlib.suppress(OSError):
                os.replace(self._path + ".times", self._path + ".1.times")
            self._open()
        self._index(self._size, time.clock_gettime_ns(time.CLOCK_REALTIME))
        with contextlib.suppress(OSError):
            self._size += os.write(self._fd, data)

    def close(self) -> None:
        """Close the log and its index."""
        for fd in (self._fd, self._times):
            with contextlib.suppress(OSError):
                os.close(fd)
