"""The socket of Envoy's public listener, which outlives Envoy, so that clients wait for its successor.

The gateway binds the socket and keeps it; Envoy alone listens on it, and accepts from it (`bind.c`).
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from serving.system import native_library
from serving.system.network import listener_copy, sockets
from serving.system.network.kept_sockets import ALL_OF_IPV6, KeptSockets, Place
from serving.system.processes import ProcessIdentity

VARIABLE = "SLIPWAY_PUBLIC_SOCKET"
"""The environment variable from which `bind.c` reads the number of the descriptor."""
_PRELOADED = "LD_PRELOAD"


def descriptor(kept: KeptSockets, host: str, port: int) -> int:
    """Return the descriptor of the public socket in `kept`; if `kept` has none, bind a socket and add it.

    Connections are refused until an Envoy listens. After that Envoy's end they wait for the next Envoy.

    Raises:
        OSError: another user has the port, or another process listens there.
    """
    if not _retain(kept, host, port):
        sockets.try_shared_port(host, port)
        kept.add(sockets.bound(host, port))
    (public,) = kept.to_pass()
    return public


def adopt(kept: KeptSockets, envoy: ProcessIdentity, host: str, port: int) -> None:
    """Add to `kept` a copy of the public socket of an Envoy that another gateway started.

    Nothing is added if this process may not copy the socket: it then ends with that Envoy.
    """
    if not _retain(kept, host, port):
        copy = listener_copy.of_process(envoy, host, port)
        if copy is not None:
            kept.add(copy)


def _retain(kept: KeptSockets, host: str, port: int) -> bool:
    """Close all sockets in `kept` but the public one, and return whether `kept` has the public one."""
    # As `kept_sockets.place_of`: a kept IPv6 socket keeps its port on all IPv6 addresses.
    address = ALL_OF_IPV6 if sockets.family(host) == socket.AF_INET6 else host
    place = Place(os.geteuid(), address, port)
    kept.retain(lambda other: other == place)
    return place in kept


def close(kept: KeptSockets) -> None:
    """Refuse connections from now on, also where other processes hold the socket, and close it."""
    for number in kept.to_pass():
        with socket.socket(fileno=os.dup(number)) as listener, contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RD)  # acts on the socket, not the descriptor; fails if none listens
    kept.close()


@contextlib.contextmanager
def library() -> Iterator[int]:
    """Yield a descriptor of the library that lets Envoy listen on the public socket.

    Raises:
        errors.UserError: the installation has no library.
    """
    # At each start of Envoy, as an upgrade may have replaced the library's file.
    descriptor = os.open(native_library.path(Path(__file__).parent, "bind"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def environment(descriptor: int, library: int) -> Mapping[str, str]:
    """Return the variables by which an Envoy listens on the public socket.

    Args:
        descriptor: that of the socket, which Envoy must inherit with the same number.
        library: that of the library, likewise.
    """
    # The loader splits the variable at spaces and colons, which the library's path may have.
    libraries = [f"/proc/self/fd/{library}"]
    if already_preloaded := os.environ.get(_PRELOADED):
        libraries.append(already_preloaded)
    return {_PRELOADED: ":".join(libraries), VARIABLE: str(descriptor)}
