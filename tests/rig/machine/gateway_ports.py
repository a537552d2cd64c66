"""Listeners that only marked connections reach, as the node makes them of a Pod's gateway port."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from serving.embedded.kubelet.container import port_binding
from serving.system.network import sockets

needs_marks = pytest.mark.skipif(
    not (sockets.can_mark() and port_binding.can_accept_only_marked(sockets.GATEWAY_MARK)),
    reason="needs CAP_NET_ADMIN to filter and mark packets",
)


def keep_for_gateway(address: str, port: int) -> None:
    """Attach the filter to this process's listener at an address; it drops the packets without the mark."""
    with _listener(address, port) as listener:
        port_binding.accept_only_marked(listener, sockets.GATEWAY_MARK)


def _listener(address: str, port: int) -> socket.socket:
    """Return a duplicate; gRPC's servers give nobody their socket."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            duplicate = socket.socket(fileno=os.dup(int(entry.name)))
            bound = duplicate.getsockname()
            is_tcp = duplicate.family in (socket.AF_INET, socket.AF_INET6)
            is_listener = is_tcp and duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            # gRPC's are of IPv6, with a mapped address.
            if is_listener and (bound[0].removeprefix("::ffff:"), bound[1]) == (address, port):
                return duplicate
            duplicate.close()
    raise AssertionError(f"this process does not listen at {address}:{port}")


def accepts(address: str, port: int, *, marked: bool = False) -> bool:
    """Return whether a connection is accepted; packets without the mark are dropped without an answer."""
    with socket.socket() as client:
        if marked:
            sockets.mark(client)
        client.settimeout(0.3)
        return client.connect_ex((address, port)) == 0
