"""Asks the kernel who listens at a TCP port, by netlink: sock_diag(7). Imports little.

`socket` is not imported, as it costs a megabyte in every container shim; `_socket` is its core.
"""

import _socket
import contextlib
import errno
import os
import struct

NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY, _NLMSG_ERROR = 20, 2
_NLM_F_REQUEST = 1
_HEADER = struct.Struct("=LHHLL")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_REQUEST = struct.Struct("=BBBBL")
"""struct inet_diag_req_v2 up to the socket's id: family, protocol, extensions, padding, states."""
_SOCKET_ID = struct.Struct("=2s2s16s16sL8s")
"""struct inet_diag_sockid: source port, destination port, source, destination, interface, cookie."""
_USER = struct.Struct("=L")
_USER_AT = _HEADER.size + 4 + _SOCKET_ID.size + 4 * 3
"""Offset of idiag_uid: after the message's header, four bytes, the id, and expires, rqueue and wqueue."""
_ANY_COOKIE = b"\xff" * 8
_ALL_STATES = 0xFFFFFFFF


def listener(address: str, port: int) -> int | None:
    """Return the user id of the socket that would accept a connection to this IPv4 address and port.

    Returns None where nothing listens.

    Raises:
        OSError: the kernel refuses the question.
    """
    own = _SOCKET_ID.pack(port.to_bytes(2, "big"), b"", _socket.inet_aton(address), b"", 0, _ANY_COOKIE)
    content = _REQUEST.pack(_socket.AF_INET, _socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + own
    length = _HEADER.size + len(content)
    netlink = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    with contextlib.closing(netlink) as connection:
        connection.send(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + content)
        answer = connection.recv(4096)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, os.strerror(number), "sock_diag")
    return int(_USER.unpack_from(answer, _USER_AT)[0])
