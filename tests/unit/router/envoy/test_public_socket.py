"""A program listens on the gateway's socket when it binds its address, and on one of its own otherwise."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.router.envoy.process import public_socket
from serving.system import native_library
from serving.system.network import sockets
from serving.system.network.kept_sockets import KeptSockets

HOSTS = ["127.0.0.1", "::1"]
LISTEN = """
import os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen()
    print(os.fstat(listener.fileno()).st_ino, os.get_inheritable(listener.fileno()))
"""
"""Listens as Envoy does, and ends."""


@pytest.fixture
def kept() -> Iterator[KeptSockets]:
    with contextlib.closing(KeptSockets()) as made:
        yield made


def listen(host: str, port: int, inherited: int, variables: dict[str, str] | None = None) -> tuple[int, bool]:
    """Return the inode of the socket on which another process has listened, and whether it is inheritable."""
    with public_socket.library() as library:
        environment = os.environ | public_socket.environment(inherited, library) | (variables or {})
        done = subprocess.run(
            [sys.executable, "-c", LISTEN, host, str(port)],
            env=environment,
            pass_fds=[inherited, library],
            stdout=subprocess.PIPE,
            check=True,
        )
    inode, inheritable = done.stdout.split()
    return int(inode), inheritable == b"True"


def is_listening(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@pytest.mark.parametrize("host", HOSTS)
def test_connections_wait_at_the_socket_when_the_program_that_listened_has_ended(
    kept: KeptSockets, host: str
) -> None:
    port = sockets.try_port(host, 0)
    descriptor = public_socket.descriptor(kept, host, port)
    with socket.socket(sockets.family(host)) as client, pytest.raises(ConnectionRefusedError):
        client.connect((host, port))
    inode, is_inheritable = listen(host, port, descriptor)
    assert inode == os.fstat(descriptor).st_ino
    assert not is_inheritable, "the flags are those of the program's own socket"
    with socket.create_connection((host, port)), socket.socket(fileno=os.dup(descriptor)) as listener:
        listener.accept()[0].close()
    assert public_socket.descriptor(kept, host, port) == descriptor, "the next program listens there, too"


@pytest.mark.parametrize(
    "variables", [{public_socket.VARIABLE: "x"}, {public_socket.VARIABLE: "99"}, {"LD_PRELOAD": ""}], ids=str
)
def test_program_has_its_own_socket_when_it_is_given_none(
    kept: KeptSockets, variables: dict[str, str]
) -> None:
    port = sockets.try_port(HOSTS[0], 0)
    descriptor = public_socket.descriptor(kept, HOSTS[0], port)
    inode, _ = listen(HOSTS[0], port, descriptor, variables)
    assert inode != os.fstat(descriptor).st_ino
    assert not is_listening(descriptor)


@pytest.mark.parametrize("other", ["127.0.0.2", "::1"])
def test_program_has_its_own_socket_when_it_binds_another_address(kept: KeptSockets, other: str) -> None:
    port = sockets.try_port(HOSTS[0], 0)
    descriptor = public_socket.descriptor(kept, HOSTS[0], port)
    inode, _ = listen(other, port, descriptor)
    assert inode != os.fstat(descriptor).st_ino
    assert not is_listening(descriptor)


def test_connections_are_refused_when_the_socket_is_closed_and_another_process_holds_it(
    kept: KeptSockets,
) -> None:
    port = sockets.try_port(HOSTS[0], 0)
    with contextlib.closing(KeptSockets()) as others:
        descriptor = public_socket.descriptor(kept, HOSTS[0], port)
        others.join([os.dup(descriptor)])
        listen(HOSTS[0], port, descriptor)
        public_socket.close(kept)
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOSTS[0], port))
        listen(HOSTS[0], port, public_socket.descriptor(others, HOSTS[0], port))
        with socket.create_connection((HOSTS[0], port)):
            pass


def test_socket_of_another_port_is_closed_when_the_port_changes(kept: KeptSockets) -> None:
    first, second = (sockets.try_port(HOSTS[0], 0) for _ in range(2))
    public_socket.descriptor(kept, HOSTS[0], first)
    public_socket.descriptor(kept, HOSTS[0], second)
    assert [place.port for place in kept.places] == [second]


def test_port_is_refused_when_another_process_listens_there(kept: KeptSockets) -> None:
    with (
        socket.create_server((HOSTS[0], 0), reuse_port=True) as other,
        pytest.raises(OSError, match="in use"),
    ):
        public_socket.descriptor(kept, HOSTS[0], other.getsockname()[1])
    assert kept.places == []


def test_libraries_of_the_caller_are_loaded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert public_socket.environment(3, 4)["LD_PRELOAD"].endswith(":libother.so")


@pytest.mark.parametrize("folder", ["a b", "a:b", "$LIB"])
def test_program_listens_on_the_socket_when_the_path_of_the_installation_has_signs_of_the_loader(
    kept: KeptSockets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    installed = tmp_path / folder
    installed.mkdir()
    shutil.copy(native_library.path(Path(public_socket.__file__).parent, "bind"), installed)
    monkeypatch.setattr(public_socket, "__file__", str(installed / "public_socket.py"))
    port = sockets.try_port(HOSTS[0], 0)
    descriptor = public_socket.descriptor(kept, HOSTS[0], port)
    inode, _ = listen(HOSTS[0], port, descriptor)
    assert inode == os.fstat(descriptor).st_ino
