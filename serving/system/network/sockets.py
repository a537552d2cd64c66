"""TCP ports and Unix sockets of this machine."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from serving.system.network import addresses, unreachable

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket: sockaddr_un.sun_path less its NUL, unix(7)."""
GATEWAY_MARK = 0x53
"""SO_MARK of the connections of Slipway's components to replicas, socket(7): "S". The served port of a Pod
may drop packets without the mark, so that no other process reaches the replica (annotation
`slipway.dev/gateway-port`). Setting the mark needs CAP_NET_ADMIN or, since Linux 5.17, CAP_NET_RAW. The mark
has none of the bits by which network plugins choose packets: on a machine with a kubelet, bit 0x4000
masquerades a packet, which its firewall then drops."""
_CONNECT_SECONDS = 1.0
"""Longest wait for a connection to this machine itself."""


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of the Unix socket that fits into an address; valid in this process, during the block."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def family(host: str) -> socket.AddressFamily:
    """Return the address family of a literal address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def try_port(host: str, port: int) -> int:
    """Bind a TCP port and release it again; return its number (0 asks for any free one).

    Raises:
        OSError: the port cannot be bound; `errno` has the reason.
    """
    with socket.socket(family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def try_shared_port(host: str, port: int) -> None:
    """Check that a listener of this user can bind a TCP port, which this user may have reserved (`reserve`).

    Raises:
        OSError: another user has it, or a process listens there.
    """
    with socket.socket(family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        share(probe)
        probe.bind((host, port))
    with socket.socket(family(host)) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        if probe.connect_ex((host, port)) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


async def advertised(host: str) -> str:
    """Return the address by which other machines reach a listener on this literal address.

    For a wildcard it is that of this host's name, which kubelet writes to `/etc/hosts` of each Pod.

    Raises:
        OSError: this host's name has no address.
    """
    if not addresses.is_wildcard(host):
        return host
    named = await asyncio.get_running_loop().getaddrinfo(socket.gethostname(), None, family=family(host))
    return str(named[0][4][0])


def share(listener: socket.socket) -> None:
    """Let a socket that is not bound yet bind a port that this user has reserved (`reserve`)."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def bound(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket, with the options of Envoy's own listeners, on which Envoy will listen.

    Raises:
        OSError: another user has the port, or a socket without SO_REUSEPORT has it.
    """
    made = socket.socket(family(host))
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        share(made)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)  # noqa: FBT003 the processes share the socket's mode
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def reserve(host: str, port: int, user: int | None = None) -> socket.socket:
    """Return a socket that keeps other users from a TCP port, also while no process listens there.

    The socket does not listen: until another one does, connections are refused. Listeners of the user call
    `share` and bind the port.

    Args:
        host: a literal address.
        port: TCP port.
        user: the user id for which the port is reserved, which only root may set; None for this process's.

    Raises:
        OSError: another user has the port, or a socket without SO_REUSEPORT has it.
    """
    reserved = socket.socket(family(host))
    try:
        if user is not None:
            os.fchown(reserved.fileno(), user, user)
        # Without SO_REUSEADDR: of two sockets with it that do not listen yet, each could take the other's
        # port.
        share(reserved)
        reserved.bind((host, port))
    except OSError:
        reserved.close()
        raise
    return reserved


def keep_all_of_ipv6(port: int, user: int | None = None) -> socket.socket | None:
    """Return a socket that keeps every process from a TCP port of all IPv6 addresses (`::`).

    It completes `reserve` at an IPv4 address. A dual-stack socket at `::` also gets the connections to that
    address, and `reserve` does not always prevent one: another user binds `::` with SO_REUSEPORT, first with
    IPV6_V6ONLY and then without, and the kernel compares the second socket with the first alone. The port of
    a single IPv6 address can still be bound.

    Args:
        port: TCP port.
        user: the user id for which the port is kept, which only root may set; None for this process's.

    Returns:
        The socket, or None where the kernel has no IPv6.

    Raises:
        OSError: a process has the port of all IPv6 addresses.
    """
    try:
        kept = socket.socket(socket.AF_INET6)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        if user is not None:
            os.fchown(kept.fileno(), user, user)
        kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        unreachable.bind(kept, port)
    except OSError:
        kept.close()
        raise
    return kept


def mark(sock: socket.socket) -> None:
    """Mark the packets of a socket that is not connected yet as the gateway's or the node's.

    Raises:
        PermissionError: this process has no such capability.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, GATEWAY_MARK)


def can_mark() -> bool:
    """Return whether this process may `mark` its sockets."""
    with socket.socket() as probe:
        try:
            mark(probe)
        except PermissionError:
            return False
    return True
