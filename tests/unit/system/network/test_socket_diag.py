import os
import socket

import pytest

from serving.system.network import socket_diag

ADDRESS = "127.77.255.3"


@pytest.fixture
def listener() -> socket.socket:
    with socket.socket() as bound:
        bound.bind((ADDRESS, 0))
        yield bound


def test_user_of_a_listener_is_that_of_its_process(listener: socket.socket) -> None:
    listener.listen()
    assert socket_diag.listener(*listener.getsockname()) == os.geteuid()


def test_nobody_listens_at_a_port_that_is_only_bound(listener: socket.socket) -> None:
    assert socket_diag.listener(*listener.getsockname()) is None


def test_listener_of_all_addresses_is_seen_at_each(listener: socket.socket) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        assert socket_diag.listener(ADDRESS, everywhere.getsockname()[1]) == os.geteuid()
