"""Performs bind(2) for a container's ports in its shim: at the Pod's address, which other users cannot take.

The node keeps each port bound for the Pod's user (`pod.reserved_ports`), so a server could bind it only with
SO_REUSEPORT, which few set. The shim is notified of each bind(2) (`bind_notification`), sets the option and
binds the socket. Standard library only, as `sandbox`.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
import select
import struct

from serving.system.isolation import bind_notification
from serving.system.network import socket_diag, unreachable

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from typing import Any

    from serving.system.isolation.bind_notification import BindCall

_MAPPED = bytes(10) + b"\xff\xff"
"""First bytes of an IPv6 address that is an IPv4 address (RFC 4291)."""
# <asm-generic/socket.h>, <linux/bpf_common.h>
_SO_ATTACH_FILTER, _SO_LOCK_FILTER = 26, 44
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_MARK_AT = 0xFFFFF000 + 20
"""SKF_AD_OFF + SKF_AD_MARK, bpf(4): the mark (SO_MARK) of the packet's sender."""
_WHOLE_PACKET = 0xFFFFFFFF
_TCP_CLOSE = 7
"""State of a socket that is neither connected nor listens: <net/tcp_states.h>, the first byte of tcp_info."""
_PAUSE_SECONDS = 0.002
"""After each call, so that a flood of calls takes little of the machine: the shim has no limit of CPU."""


def requested_port(address: bytes, pod_address: str) -> int | None:
    """Return the port of a struct sockaddr if a socket bound to it would accept the Pod's connections.

    Args:
        address: of family AF_INET or AF_INET6, maybe cut short.
        pod_address: an IPv4 address.
    """
    family = int.from_bytes(address[:2], "little")
    port = int.from_bytes(address[2:4], "big")
    own = _socket.inet_aton(pod_address)
    if family == _socket.AF_INET and len(address) >= 16:
        return port if address[4:8] in (bytes(4), own) else None
    if family == _socket.AF_INET6 and len(address) >= 24:
        return port if address[8:24] in (bytes(16), _MAPPED + bytes(4), _MAPPED + own) else None
    return None


def can_accept_only_marked(mark: int) -> bool:
    """Whether the shim may attach the filter of a gateway port: the agent has CAP_NET_ADMIN."""
    sock = _socket.socket()
    try:
        accept_only_marked(sock, mark)
    except PermissionError:
        return False
    finally:
        sock.close()
    return True


class PortBinder:
    """Answers the notifications of one container."""

    def __init__(self, listener: int, spec: dict[str, Any]) -> None:
        """Answer the calls that `listener` receives.

        Args:
            listener: the descriptor of `bind_notification.install`.
            spec: the `address` of the Pod, the container's `ports`, the Pod's `user`, and of `gateway_port`,
                if not None, the `mark` of all packets that it accepts.
        """
        self.listener = listener
        self._spec = spec

    def answer(self) -> bool:
        """Answer a call; return False once the container has no process that could call."""
        try:
            call = bind_notification.receive(self.listener)
        except OSError:
            return False
        if call is not None:
            try:
                error = self._bind(call)
            except OSError as failure:
                error = failure.errno or errno.EACCES
            bind_notification.respond(self.listener, call, error)
            select.select([], [], [], _PAUSE_SECONDS)
        return True

    def _bind(self, call: BindCall) -> int | None:
        """Bind the call's socket, if it is one for a port of the container.

        Returns 0, the error number, or None if the kernel should execute the call.
        """
        try:
            address = call.address()
            port = requested_port(address, self._spec["address"])
            if port is None or port not in self._spec["ports"]:
                return None
            descriptor = call.open_socket()
        except OSError:
            return None  # an address or a descriptor that the kernel refuses, too
        try:
            sock = _socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            return None  # not a socket
        try:
            if not _can_listen(sock) or (_is_ipv6_only(sock) and address[8:24] != bytes(16)):
                return None
            if _is_ipv6_only(sock):
                # Where nobody reaches it, as the node keeps the port of all IPv6 addresses: servers that
                # listen at all of IPv4 and of IPv6 by two sockets, as nginx, would end with an error.
                unreachable.bind(sock, port)
                return 0
            return self._bind_socket(sock, port)
        finally:
            sock.close()

    def _bind_socket(self, sock: _socket.socket, port: int) -> int:
        address = self._spec["address"]
        # Shared ports are for those who ask for them: else a second server would get half of the connections.
        is_shared = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEPORT)
        if not is_shared and socket_diag.listener(address, port) == self._spec["user"]:
            return errno.EADDRINUSE
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEPORT, 1)
        if port == self._spec["gateway_port"]:
            accept_only_marked(sock, self._spec["mark"])
        sock.bind((address if sock.family == _socket.AF_INET else f"::ffff:{address}", port))
        return 0


def _can_listen(sock: _socket.socket) -> bool:
    """Whether this is a TCP socket that could listen.

    A connected one could not; to close the shim's descriptor of it may take as long as its SO_LINGER.
    """
    if sock.family not in (_socket.AF_INET, _socket.AF_INET6) or sock.type != _socket.SOCK_STREAM:
        return False
    return sock.getsockopt(_socket.IPPROTO_TCP, _socket.TCP_INFO, 1) == bytes([_TCP_CLOSE])


def _is_ipv6_only(sock: _socket.socket) -> bool:
    return sock.family == _socket.AF_INET6 and bool(
        sock.getsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY)
    )


def accept_only_marked(sock: _socket.socket, mark: int) -> None:
    """Drop all packets without this mark, of the connections that the socket will accept, too, for ever."""
    instructions = (
        (_LOAD, 0, 0, _MARK_AT),
        (_IF_EQUAL, 0, 1, mark),
        (_RETURN, 0, 0, _WHOLE_PACKET),
        (_RETURN, 0, 0, 0),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *i) for i in instructions))
    filter_ = struct.pack("@HP", len(instructions), ctypes.addressof(program))  # struct sock_fprog
    sock.setsockopt(_socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
    sock.setsockopt(_socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)
