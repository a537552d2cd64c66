"""Random access to the bytes of a file of which perhaps only the beginning is known. Pure."""

from typing import BinaryIO

HEAD = 64 * 1024
"""Bytes at the beginning that every check may read: all magic numbers and HDF5's usual places are there."""


class Unexamined(Exception):
    """The bytes exist, but are not available: of a member of an archive only the beginning is unpacked."""


class Content:
    """The bytes of a file of `size` bytes, of which the first `examined` can be read."""

    def __init__(self, file: BinaryIO, size: int, examined: int | None = None) -> None:
        """`size` and `examined` are bytes; without `examined` all of the file can be read."""
        self.file = file
        self.size = size
        self.examined = size if examined is None else examined
        self.head = b""  # `read` uses it
        self.head = self.read(0, min(HEAD, self.examined))

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from an offset, or fewer at the end of the file.

        Raises:
            Unexamined: not all of them can be read.
        """
        end = min(at + count, self.size)
        if end > self.examined:
            raise Unexamined
        if end <= at:
            return b""
        if end <= len(self.head):
            return self.head[at:end]
        self.file.seek(at)
        return self.file.read(end - at)

    def beginning(self, at: int, count: int) -> bytes:
        """Return up to `count` bytes from an offset, as far as they can be read."""
        return self.read(at, max(min(count, self.examined - at), 0))
