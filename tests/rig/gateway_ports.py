"""Listeners that only marked connections reach, as the node makes them of a Pod's gateway port."""

import contextlib
import ctypes
import os
import socket
import struct
from pathlib import Path

import pytest

from serving.system import sockets

_SO_ATTACH_FILTER = 26
_MARK = 0xFFFFF000 + 20
"""SKF_AD_OFF + SKF_AD_MARK of <linux/filter.h>."""
_PROGRAM = [
    (0x20, 0, 0, _MARK),  # ld mark
    (0x15, 0, 1, sockets.GATEWAY_MARK),  # jeq: else skip one
    (0x06, 0, 0, 0xFFFFFFFF),  # ret: the whole packet
    (0x06, 0, 0, 0),  # ret: nothing
]


def _attach(listener: socket.socket) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _PROGRAM))
    program = struct.pack("HP", len(_PROGRAM), ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _can_filter() -> bool:
    """Return whether this process may mark connections, and filter by the mark."""
    with socket.socket() as tried:
        try:
            _attach(tried)
        except PermissionError:
            return False
    return sockets.can_mark()


needs_marks = pytest.mark.skipif(not _can_filter(), reason="needs CAP_NET_ADMIN to filter and mark packets")


def keep_for_gateway(address: str, port: int) -> None:
    """Attach the filter to this process's listener at an address; it drops the packets without the mark."""
    with _listener(address, port) as listener:
        _attach(listener)


def _listener(address: str, port: int) -> socket.socket:
    """Return a duplicate; gRPC's servers give nobody their socket."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            found = socket.socket(fileno=os.dup(int(entry.name)))
            name = found.getsockname()
            is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
            is_listener = is_tcp and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            # gRPC's are of IPv6, with a mapped address.
            if is_listener and (name[0].removeprefix("::ffff:"), name[1]) == (address, port):
                return found
            found.close()
    raise AssertionError(f"this process does not listen at {address}:{port}")


def is_open_to_all(address: str, port: int) -> bool:
    """Return whether a connection without the mark is accepted; its packets are dropped without an answer."""
    with socket.socket() as client:
        client.settimeout(0.3)
        return client.connect_ex((address, port)) == 0
