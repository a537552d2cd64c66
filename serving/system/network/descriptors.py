"""Passes open files between processes over Unix stream sockets (SCM_RIGHTS, unix(7)).

Every container shim imports this module, so it imports `_socket`, the core of `socket`: the whole of `socket`
costs a megabyte.
"""

from __future__ import annotations

import _socket
import os
import sys

TYPE_CHECKING = False  # type checkers take it as true; `typing` costs memory in every container shim
if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_PASSED = 3
"""Number of a program's first passed socket: SD_LISTEN_FDS_START, sd_listen_fds(3)."""
MOST_PASSED = 16
"""Most descriptors that `receive` takes from one message; the kernel closes further ones."""
_CHUNK = 65536
_INT = 4
"""Size of a descriptor in a message, C's int."""


def pair() -> tuple[int, int]:
    """Return the descriptors of two connected sockets; executed programs do not inherit them."""
    first, second = _socket.socketpair()
    return first.detach(), second.detach()


def send(
    connection: int, content: bytes, descriptors: Sequence[int] = (), timeout: float | None = None
) -> None:
    """Send the content with the descriptors, and end the stream; the caller closes all descriptors.

    Args:
        connection: the descriptor of the socket.
        content: at least one byte.
        descriptors: of the files to pass.
        timeout: longest wait for the peer to read, in seconds; None waits for ever.

    Raises:
        OSError: the peer is gone, or does not read.
    """
    sock = _socket.socket(fileno=connection)
    sock.settimeout(timeout)
    try:
        packed = b"".join(fd.to_bytes(_INT, sys.byteorder) for fd in descriptors)
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if descriptors else []
        sent = sock.sendmsg([content], rights)
        sock.sendall(content[sent:])
        sock.shutdown(_socket.SHUT_WR)
    finally:
        sock.detach()


def receive(connection: int, timeout: float | None = None) -> tuple[bytes, list[int]]:
    """Return the content up to the end of the stream, and the descriptors that came with it.

    Args:
        connection: the descriptor of the socket.
        timeout: longest wait for each part of the content, in seconds; None waits for ever.

    Raises:
        OSError: the connection broke, or its timeout passed.
    """
    sock = _socket.socket(fileno=connection)
    sock.settimeout(timeout)
    content: list[bytes] = []
    descriptors: list[int] = []
    try:
        while True:
            data, ancillary, _, _ = sock.recvmsg(
                _CHUNK, _socket.CMSG_SPACE(MOST_PASSED * _INT), _socket.MSG_CMSG_CLOEXEC
            )
            for _, _, packed in ancillary:
                descriptors += [
                    int.from_bytes(packed[at : at + _INT], sys.byteorder)
                    for at in range(0, len(packed), _INT)
                ]
            if not data:
                return b"".join(content), descriptors
            content.append(data)
    except BaseException:
        for fd in descriptors:
            os.close(fd)
        raise
    finally:
        sock.detach()
