"""Which addresses of bind(2) are those of a Pod's port."""

import errno
import select
import socket
import struct
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.container.port_binding import PortBinder, requested_port
from serving.system.isolation import bind_notification

POD = "127.77.3.4"


def ipv4(host: str, port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + port.to_bytes(2, "big") + socket.inet_aton(host) + bytes(8)


def ipv6(host: str, port: int) -> bytes:
    address = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=H", socket.AF_INET6) + port.to_bytes(2, "big") + bytes(4) + address + bytes(4)


@pytest.mark.parametrize(
    "address",
    [
        ipv4("0.0.0.0", 8080),
        ipv4(POD, 8080),
        ipv6("::", 8080),
        ipv6("::ffff:0.0.0.0", 8080),
        ipv6(f"::ffff:{POD}", 8080),
    ],
)
def test_port_is_requested_by_the_pods_address_and_by_that_of_all(address: bytes) -> None:
    assert requested_port(address, POD) == 8080


@pytest.mark.parametrize(
    "address",
    [ipv4("127.0.0.1", 8080), ipv4("127.77.3.5", 8080), ipv6("::1", 8080), ipv6("::ffff:127.0.0.1", 8080)],
)
def test_port_is_not_requested_by_another_address(address: bytes) -> None:
    assert requested_port(address, POD) is None


@given(st.binary(max_size=40))
def test_port_of_any_bytes_is_none_or_in_them(address: bytes) -> None:
    port = requested_port(address, POD)
    assert port is None or address[2:4] == port.to_bytes(2, "big")


@given(st.sampled_from([ipv4(POD, 8080), ipv6("::", 8080)]), st.data())
def test_address_cut_short_requests_no_port(address: bytes, data: st.DataObject) -> None:
    least = 16 if len(address) == 16 else 24
    assert requested_port(address[: data.draw(st.integers(0, least - 1))], POD) is None


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_pause_after_a_call_is_as_long_as_its_answer_when_that_is_slow(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the look for the process of a thread is, on a kernel without pidfds of threads."""
    pauses: list[float] = []

    def open_socket() -> int:
        time.sleep(seconds)
        raise OSError(errno.EBADF, "no such descriptor")

    call = SimpleNamespace(address=lambda: ipv4(POD, 8080), open_socket=open_socket)
    monkeypatch.setattr(bind_notification, "receive", lambda _: call)
    monkeypatch.setattr(bind_notification, "respond", lambda *_: None)
    monkeypatch.setattr(select, "select", lambda *arguments: pauses.append(arguments[3]))
    assert PortBinder(-1, {"address": POD, "ports": [8080]}).answer()
    assert len(pauses) == 1
    assert pauses[0] >= max(seconds, 0.002)
