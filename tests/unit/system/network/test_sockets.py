"""A reserved port is kept from other users and shared with listeners of its user; only root marks sockets."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from serving.system.network import sockets
from tests.rig.machine import port_thief

HOST = "127.0.0.1"
NOBODY = 65534
CAN_MARK = """
import os, sys
from serving.system.network import sockets
from tests.rig.machine import port_thief
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_reserved_port_is_kept_from_other_users_before_during_and_after_a_listener() -> None:
    port = sockets.try_port("::", 0)
    every_way = port_thief.ways_to_bind(HOST, port)
    assert len(every_way) == 24, "the test cannot fail if nobody can bind the port"
    with sockets.reserve(HOST, port), sockets.keep_all_of_ipv6(port) or contextlib.nullcontext():
        assert port_thief.ways_to_bind(HOST, port) == []
        with listener(port), socket.create_connection((HOST, port)):
            assert port_thief.ways_to_bind(HOST, port) == []
        assert port_thief.ways_to_bind(HOST, port) == []
        with listener(port):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_other_addresses_are_free_when_all_of_ipv6_is_kept() -> None:
    port = sockets.try_port(HOST, 0)
    with sockets.keep_all_of_ipv6(port) or contextlib.nullcontext():
        for host in (HOST, "::1"):
            with socket.create_server((host, port), family=sockets.family(host)):
                pass


def test_all_of_ipv6_cannot_be_kept_when_a_process_has_it() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, reuse_port=True) as other,
        pytest.raises(OSError, match="in use"),
    ):
        sockets.keep_all_of_ipv6(other.getsockname()[1])


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


@pytest.mark.parametrize(
    ("owner", "bits"),
    [
        ("Kubernetes: masquerade, drop", 0xC000),
        ("Cilium", 0x0F00),
        ("Calico", 0xFFFF0000),
        ("Amazon's CNI", 0x80),
    ],
)
def test_mark_of_the_gateway_has_no_bit_of_a_network_plugin(owner: str, bits: int) -> None:
    assert sockets.GATEWAY_MARK & bits == 0, owner


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
