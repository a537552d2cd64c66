"""Performs bind(2) for a container's ports in its shim: at the Pod's address, which other users cannot take.

The node keeps each port bound for the Pod's user (`pod.reserved_ports`), so a server could bind it only with
SO_REUSEPORT, which few set. The shim is notified of each bind(2) (`bind_notification`), sets the option and
binds the socket. Imports little, as `sandbox`.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
import select
import struct
import time

from serving.system.isolation import bind_notification
from serving.system.network import socket_diag, unreachable

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from typing import Any

    from serving.system.isolation.bind_notification import BindCall

_MAPPED = bytes(10) + b"\xff\xff"
"""First bytes of an IPv6 address that is an IPv4 address (RFC 4291)."""
# struct sockaddr_in, <netinet/in.h>: family (2 bytes), port (2), IPv4 address (4), padding (8)
_IPV4_BYTES, _IPV4_ADDRESS = 16, slice(4, 8)
# struct sockaddr_in6: family (2 bytes), port (2), flow (4), IPv6 address (16), scope (4, optional: ipv6(7))
_IPV6_LEAST_BYTES, _IPV6_ADDRESS = 24, slice(8, 24)
_ALL_OF_IPV4, _ALL_OF_IPV6 = bytes(4), bytes(16)
# <asm-generic/socket.h>
_SO_ATTACH_FILTER, _SO_LOCK_FILTER = 26, 44
# <linux/bpf_common.h>: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
"""struct sock_filter: code, jump if true, jump if false, operand."""
_MARK_AT = 0xFFFFF000 + 20
"""SKF_AD_OFF + SKF_AD_MARK, bpf(4): the mark (SO_MARK) of the packet's sender."""
_WHOLE_PACKET = 0xFFFFFFFF
"""Result of a filter: the number of bytes of the packet that are kept; 0 drops it."""
_TCP_CLOSE = 7
"""State of a socket that is neither connected nor listens: <net/tcp_states.h>, the first byte of tcp_info."""
_LEAST_PAUSE_SECONDS = 0.002
"""After each call; a call that took longer is followed by a pause of its own duration, so that a flood of
calls takes half of a core at most: the shim has no limit of CPU. The search for a thread's process may take
tens of milliseconds on an older kernel."""


def requested_port(address: bytes, pod_address: str) -> int | None:
    """Return the port of a struct sockaddr if a socket bound to it would accept the Pod's connections.

    Args:
        address: of any family, and of any length, as the container's process passed it.
        pod_address: an IPv4 address.
    """
    family = int.from_bytes(address[:2], "little")
    port = int.from_bytes(address[2:4], "big")
    own = _socket.inet_aton(pod_address)
    if family == _socket.AF_INET and len(address) >= _IPV4_BYTES:
        return port if address[_IPV4_ADDRESS] in (_ALL_OF_IPV4, own) else None
    if family == _socket.AF_INET6 and len(address) >= _IPV6_LEAST_BYTES:
        accepting = (_ALL_OF_IPV6, _MAPPED + _ALL_OF_IPV4, _MAPPED + own)
        return port if address[_IPV6_ADDRESS] in accepting else None
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
    """Answers the notifications of one container's calls of bind(2)."""

    def __init__(self, listener: int, spec: dict[str, Any]) -> None:
        """Answer the calls that `listener` receives.

        Args:
            listener: the descriptor of `bind_notification.install`.
            spec: from `launch._binding`: `address`, the Pod's IPv4 address; `ports`, of the container;
                `user`, the Pod's user id; `gateway_port`, which accepts only packets with `mark`, or None.
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
            began = time.monotonic()
            try:
                error = self._bind(call)
            except OSError as failure:
                error = failure.errno or errno.EACCES
            bind_notification.respond(self.listener, call, error)
            select.select([], [], [], max(time.monotonic() - began, _LEAST_PAUSE_SECONDS))
        return True

    def _bind(self, call: BindCall) -> int | None:
        """Bind the call's socket, if it is one for a port of the container.

        Returns 0 for success, an error number, or None if the kernel should execute the call.
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
            if not _can_listen(sock):
                return None
            if _is_ipv6_only(sock):
                return _bind_ipv6_only(sock, port, address[_IPV6_ADDRESS])
            return self._bind_socket(sock, port)
        finally:
            sock.close()

    def _bind_socket(self, sock: _socket.socket, port: int) -> int:
        address = self._spec["address"]
        # As without a shim, a second listener needs SO_REUSEPORT: it gets half of the connections.
        is_shared = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEPORT)
        if not is_shared and socket_diag.listener(address, port) == self._spec["user"]:
            return errno.EADDRINUSE
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEPORT, 1)
        if port == self._spec["gateway_port"]:
            accept_only_marked(sock, self._spec["mark"])
        sock.bind((address if sock.family == _socket.AF_INET else f"::ffff:{address}", port))
        return 0


def _can_listen(sock: _socket.socket) -> bool:
    """Whether this is a TCP socket that could listen: it neither is connected nor listens.

    A connected one could hold the shim up: close(2) of its last descriptor may block for its SO_LINGER.
    """
    if sock.family not in (_socket.AF_INET, _socket.AF_INET6) or sock.type != _socket.SOCK_STREAM:
        return False
    return sock.getsockopt(_socket.IPPROTO_TCP, _socket.TCP_INFO, 1) == bytes([_TCP_CLOSE])


def _is_ipv6_only(sock: _socket.socket) -> bool:
    return sock.family == _socket.AF_INET6 and bool(
        sock.getsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY)
    )


def _bind_ipv6_only(sock: _socket.socket, port: int, address: bytes) -> int | None:
    """Bind a socket of all IPv6 addresses (`::`) where nobody can reach it; return as `PortBinder._bind`.

    The node keeps the port of `::`. If the bind(2) failed, servers that listen at all of IPv4 and at all of
    IPv6 by two sockets, such as nginx, would end with an error.
    """
    if address != _ALL_OF_IPV6:
        return None
    unreachable.bind(sock, port)
    return 0


def accept_only_marked(sock: _socket.socket, mark: int) -> None:
    """Drop the packets without this mark that reach the socket or a connection that it accepts, for ever."""
    instructions = (
        (_LOAD, 0, 0, _MARK_AT),
        (_IF_EQUAL, 0, 1, mark),  # without the mark, skip one instruction
        (_RETURN, 0, 0, _WHOLE_PACKET),
        (_RETURN, 0, 0, 0),
    )
    program = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*i) for i in instructions))
    filter_ = struct.pack("@HP", len(instructions), ctypes.addressof(program))  # struct sock_fprog
    sock.setsockopt(_socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
    sock.setsockopt(_socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)
