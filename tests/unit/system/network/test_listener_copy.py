import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from serving.system import processes
from serving.system.network import listener_copy
from serving.system.processes import ProcessIdentity

HOSTS = ["127.0.0.1", "::1"]
LISTENER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
address = (sys.argv[1], 0)
pair = socket.socketpair()
with socket.socket(family) as bound, socket.create_server(address, family=family) as listener:
    bound.bind(address)
    print(listener.getsockname()[1], bound.getsockname()[1], flush=True)
    sys.stdin.read()
"""
COPY = """
import os, sys
from serving.system import processes
from serving.system.network import listener_copy
os.setuid(65534)
process = processes.identity_of(int(sys.argv[1]))
print(listener_copy.of_process(process, "127.0.0.1", int(sys.argv[2])))
"""


@contextmanager
def listening(host: str) -> Iterator[tuple[ProcessIdentity, int, int]]:
    """Run a process that listens; yield it, its port, and another port that it has only bound."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        port, bound = map(int, program.stdout.readline().split())
        identity = processes.identity_of(program.pid)
        assert identity is not None
        yield identity, port, bound
        program.kill()


@pytest.mark.parametrize("host", HOSTS)
def test_copy_accepts_connections_when_the_process_has_ended(host: str) -> None:
    with listening(host) as (process, port, bound):
        assert listener_copy.of_process(process, host, bound) is None
        copy = listener_copy.of_process(process, host, port)
        assert copy is not None
    with copy:
        assert not copy.get_inheritable()
        with socket.create_connection((host, port)):
            copy.accept()[0].close()
    assert listener_copy.of_process(process, host, port) is None


BUSY_LISTENER = """
import socket
def connect():
    while True:
        for number in range(8):
            socket.socket().close()
spare = [socket.socket() for _ in range(8)]
listener = socket.create_server(("127.0.0.1", 0))
for each in spare:
    each.close()
print(listener.getsockname()[1], flush=True)
connect()
"""


def test_copy_is_made_while_the_process_opens_and_closes_other_sockets() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_LISTENER], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        identity = processes.identity_of(program.pid)
        assert identity is not None
        copies = [listener_copy.of_process(identity, "127.0.0.1", port) for _ in range(300)]
        program.kill()
    assert all(copies)
    for copy in copies:
        assert copy is not None
        copy.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_another_user_gets_no_copy() -> None:
    with listening(HOSTS[0]) as (process, port, _):
        arguments = [str(process.pid), str(port)]
        done = subprocess.run(
            [sys.executable, "-c", COPY, *arguments], stdout=subprocess.PIPE, text=True, check=True
        )
    assert done.stdout == "None\n"
