"""A reserved port is kept from other users and shared with listeners of its user; only root marks sockets."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from serving.system.network import sockets

HOST = "127.0.0.1"
NOBODY = 65534
BIND = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
for address in ("127.0.0.1", "0.0.0.0"):
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket() as thief:
            for option in options:
                thief.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                thief.bind((address, int(sys.argv[2])))
                thief.listen()
            except OSError:
                continue
            print(address, options)
"""
"""Tries to take a port as another user, in every way, and prints what succeeds."""
CAN_MARK = """
import os, sys
from serving.system.network import sockets
os.setuid(int(sys.argv[1]))
print(sockets.can_mark())
"""


def listener(port: int) -> socket.socket:
    """Return a listener as the API and Envoy have it."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sockets.share(made)
    made.bind((HOST, port))
    made.listen()
    return made


def taken_by_another_user(port: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BIND, str(NOBODY), str(port)], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_reserved_port_is_kept_from_other_users_before_during_and_after_a_listener() -> None:
    port = sockets.try_port(HOST, 0)
    assert taken_by_another_user(port), "the test cannot fail if nobody can bind the port"
    with sockets.reserve(HOST, port):
        assert taken_by_another_user(port) == ""
        with listener(port), socket.create_connection((HOST, port)):
            assert taken_by_another_user(port) == ""
        assert taken_by_another_user(port) == ""
        with listener(port):
            pass


def test_reserved_port_refuses_connections_while_nobody_listens() -> None:
    with sockets.reserve(HOST, sockets.try_port(HOST, 0)) as reserved, socket.socket() as client:
        assert client.connect_ex(reserved.getsockname()) != 0


def test_shared_port_is_refused_when_a_process_listens_and_accepted_when_it_is_reserved() -> None:
    port = sockets.try_port(HOST, 0)
    with sockets.reserve(HOST, port):
        sockets.try_shared_port(HOST, port)
        with listener(port), pytest.raises(OSError, match="in use"):
            sockets.try_shared_port(HOST, port)
        sockets.try_shared_port(HOST, port)


def test_port_of_a_socket_that_does_not_share_it_cannot_be_reserved() -> None:
    with contextlib.closing(socket.create_server((HOST, 0))) as other, pytest.raises(OSError, match="in use"):
        sockets.reserve(*other.getsockname())


@pytest.mark.skipif(not sockets.can_mark(), reason="needs CAP_NET_ADMIN or CAP_NET_RAW")
def test_root_marks_sockets_and_another_user_cannot() -> None:
    with socket.socket() as marked:
        sockets.mark(marked)
        assert marked.getsockopt(socket.SOL_SOCKET, socket.SO_MARK) == sockets.GATEWAY_MARK
    done = subprocess.run(
        [sys.executable, "-c", CAN_MARK, str(NOBODY)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


async def test_advertised_address_of_a_wildcard_is_that_of_the_hosts_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "127.3.4.5")
    assert await sockets.advertised("0.0.0.0") == "127.3.4.5"
    assert await sockets.advertised("10.0.0.7") == "10.0.0.7"
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(OSError, match=r".+"):
        await sockets.advertised("0.0.0.0")
