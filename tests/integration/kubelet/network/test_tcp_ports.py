"""Containers that listen by TCP: no other user gets a Pod's port, and each kind of server gets its own."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving import errors
from serving.embedded.kubelet.records import PodDirectory
from serving.kube import Kube
from serving.resources import kinds, names
from serving.system.network import sockets
from tests.rig.machine import port_thief
from tests.rig.servers.node_process import (
    NodeProcess,
    is_ready,
    log_of,
    main_status,
    pod,
    until,
    until_gone,
)

NAMESPACE = "default"
PORT = 18_473
"""No program's usual port: the tests see that it is free at other addresses."""
READINESS = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1}
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

SERVER = """
import http.server, os, socket, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', '4')
        self.end_headers()
        self.wfile.write(b'mine')
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.{family}
    allow_reuse_address = {reuse}
    def server_bind(self):
        self.socket.bind(self.server_address)
for _ in range({threads}):
    thread = threading.Thread(target=str)
    thread.start()
    thread.join()
print('logged', file=open('/dev/stderr', 'w'), flush=True)
thread = threading.Thread(target=lambda: Server(({host}, 18473), Handler).serve_forever())
thread.start()
thread.join()
"""
SERVERS = {
    "late-thread": SERVER.format(family="AF_INET", reuse=True, host="''", threads=4200),
    "own-address": SERVER.format(family="AF_INET", reuse=True, host="os.environ['HOST']", threads=0),
    "all-addresses": SERVER.format(family="AF_INET", reuse=False, host="''", threads=0),
    "all-addresses-of-ipv6": SERVER.format(family="AF_INET6", reuse=True, host="'::'", threads=0),
}
HOST = {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
BINDS = """
import json, os, socket, time
own, kept = os.environ['HOST'], []
def bind(address, *options, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    kept.append(socket.socket(family, kind))
    for option in options: kept[-1].setsockopt(*option, 1)
    try:
        kept[-1].bind(address)
        if kind == socket.SOCK_STREAM: kept[-1].listen()
    except OSError as error: return type(error).__name__ + ' ' + os.strerror(error.errno)
    return ' '.join(str(part) for part in kept[-1].getsockname()[:2]).replace(own, 'own')
def mptcp():
    try: return str(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
    except OSError as error: return os.strerror(error.errno)
shared = (socket.SOL_SOCKET, socket.SO_REUSEPORT)
import ctypes
libc, address = ctypes.CDLL(None, use_errno=True), b'\\2\\0\\x48\\x29' + bytes(12)
def raw(descriptor, address, length):
    libc.bind(descriptor, address, length)
    return os.strerror(ctypes.get_errno())
def connected():
    server = socket.create_server(('127.0.0.1', 0))
    client = socket.create_connection(server.getsockname())
    return raw(client.fileno(), address, 16)
def many_files():
    begun = time.monotonic()
    for _ in range(1500): outcome = raw(1, address, 16)
    return outcome + (' at a pace' if time.monotonic() - begun > 1499 * 0.002 else ' as fast as it can')
only_ipv6 = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
print(json.dumps({
    'first': bind(('', 18473)),
    'second': bind((own, 18473), (socket.SOL_SOCKET, socket.SO_REUSEADDR)),
    'shared': bind((own, 18473), shared),
    'datagrams': bind((own, 18473), kind=socket.SOCK_DGRAM),
    'loopback': bind(('127.0.0.1', 18473)),
    'of ipv6 alone': bind(('::1', 18473), only_ipv6, family=socket.AF_INET6),
    'all of ipv6 alone': bind(('::', 18473), only_ipv6, family=socket.AF_INET6).startswith('100::'),
    'undeclared': bind((own, 9090)),
    'not of this machine': bind(('192.0.2.1', 18473)),
    'mptcp': mptcp(),
    'files, often': many_files(),
    'connected': connected(),
    'no descriptor': raw(-1, address, 16),
    'no memory': raw(kept[0].fileno(), ctypes.c_void_p(8), 16),
    'a short address': raw(kept[0].fileno(), address, 3),
    'a long address': raw(kept[0].fileno(), address, 4096),
}), flush=True)
time.sleep(99)
"""


@contextlib.asynccontextmanager
async def running(kube: Kube, name: str, program: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield a Pod with a TCP port that is ready, or runs if it has no readiness probe."""
    meta = fields.pop("annotations", {})
    created = pod(NAMESPACE, name, program, ports=[{"containerPort": PORT}], env=[HOST], **fields)
    created["metadata"]["annotations"] = meta
    await kube.create(kinds.POD, created)
    yield await until(kube, NAMESPACE, name, is_ready)
    with contextlib.suppress(errors.NotFound):
        await kube.delete(kinds.POD, NAMESPACE, name)
    await until_gone(kube, NAMESPACE, name)


def answer(address: str, *, marked: bool = False) -> str:
    """Return the answer of the server at an address, or the name of the error."""
    with socket.socket() as client:
        if marked:
            sockets.mark(client)
        client.settimeout(1)
        try:
            client.connect((address, PORT))
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return client.makefile("rb").read()[-4:].decode()
        except OSError as error:
            return type(error).__name__


@pytest.mark.parametrize("program", SERVERS.values(), ids=SERVERS)
async def test_server_gets_its_port_and_nobody_else_does_while_it_is_down(
    kube: Kube, node: NodeProcess, program: str
) -> None:
    async with running(kube, "serves", program, readinessProbe=READINESS) as stored:
        address = stored["status"]["podIP"]
        assert answer(address) == "mine"
        assert port_thief.ways_to_bind(address, PORT) == []
        directory = PodDirectory(node.data_dir.pods / stored["metadata"]["uid"])
        _, server = directory.run("main", 0).identities() or pytest.fail("the run has no process")
        os.kill(server.pid, signal.SIGKILL)
        with port_thief.trying(address, PORT) as thief:
            await until(kube, NAMESPACE, "serves", is_restarted)
        assert thief.bound == {}
        assert answer(address) == "mine"


def is_restarted(stored: dict[str, Any]) -> bool:
    return main_status(stored)["restartCount"] == 1 and is_ready(stored)


async def test_two_pods_that_bind_all_addresses_serve_beside_each_other(
    kube: Kube, node: NodeProcess
) -> None:
    program = SERVERS["all-addresses"]
    async with (
        running(kube, "first", program, readinessProbe=READINESS) as first,
        running(kube, "second", program, readinessProbe=READINESS) as second,
    ):
        addresses = {stored["status"]["podIP"] for stored in (first, second)}
        assert len(addresses) == 2
        assert [answer(address) for address in addresses] == ["mine", "mine"]
        assert answer("127.0.0.1") == "ConnectionRefusedError"


async def test_port_of_the_gateway_is_reached_by_marked_connections_alone(
    kube: Kube, node: NodeProcess
) -> None:
    node.data_dir.configuration.touch()  # as `up` does, whose gateway marks its connections
    closed = {names.GATEWAY_PORT_ANNOTATION: str(PORT)}
    program = SERVERS["own-address"]
    async with running(kube, "closed", program, annotations=closed, readinessProbe=READINESS) as stored:
        address = stored["status"]["podIP"]
        assert answer(address) == "TimeoutError"
        assert answer(address, marked=True) == "mine"
    node.data_dir.configuration.unlink()


async def test_other_binds_are_those_of_the_kernel(kube: Kube, node: NodeProcess) -> None:
    async with running(kube, "binds", BINDS) as stored:
        await until(kube, NAMESPACE, "binds", lambda _: "}" in log_of(node.data_dir, stored))
        assert json.loads(log_of(node.data_dir, stored)) == {
            "first": "own 18473",
            "second": "OSError Address already in use",
            "shared": "own 18473",
            "datagrams": "own 18473",
            "loopback": "127.0.0.1 18473",
            "of ipv6 alone": "::1 18473",
            "all of ipv6 alone": True,
            "undeclared": "own 9090",
            "not of this machine": "OSError Cannot assign requested address",
            "mptcp": "Protocol not supported",
            "files, often": "Socket operation on non-socket at a pace",
            "connected": "Invalid argument",
            "no descriptor": "Bad file descriptor",
            "no memory": "Bad address",
            "a short address": "Invalid argument",
            "a long address": "Invalid argument",
        }


async def test_pod_whose_port_another_user_has_bound_at_all_addresses_waits_for_it(
    kube: Kube, node: NodeProcess
) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        await kube.create(kinds.POD, pod(NAMESPACE, "late", "pass", ports=[{"containerPort": port}]))
        stored = await until(
            kube,
            NAMESPACE,
            "late",
            lambda p: (
                "waiting" in main_status(p).get("state", {})
                and main_status(p)["state"]["waiting"]["reason"] == "AddressTaken"
            ),
        )
        waiting = main_status(stored)["state"]["waiting"]
        expected = f"{stored['status']['podIP']}:{port} is taken by a process of user 0, not of this Pod"
        assert waiting["message"] == expected
    await until(
        kube,
        NAMESPACE,
        "late",
        lambda p: (
            main_status(p).get("state", {}).keys() != {"waiting"}
            or main_status(p)["state"]["waiting"]["reason"] != "AddressTaken"
        ),
    )
    await kube.delete(kinds.POD, NAMESPACE, "late")
    await until_gone(kube, NAMESPACE, "late")
