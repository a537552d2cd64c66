"""Sends a probe or runs a hook: by HTTP, gRPC or a TCP connection, or by a command in the container."""

import asyncio
import contextlib
import os
import re
import ssl
import string
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from serving.embedded.kubelet.container import exec_command
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.pod import grpc_health
from serving.embedded.kubelet.pod.probes import port_of
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.network import replica_connections, socket_diag, sockets

MAX_HEADERS = 64
"""The most headers of an answer that are read."""
_DEFAULT_HEADERS = {"User-Agent": "slipway-probe", "Accept": "*/*", "Connection": "close"}
"""Headers of a probe by HTTP, unless its spec has others."""

_PATH_CHARACTERS = "%/!$&'()*+,:;=@[]"
"""Characters of a path that are sent as they are, beside letters, digits and `-._~`; as in kubelet."""
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class ProbeAnswer:
    """The outcome of one probe; names of headers are in lower case."""

    problem: str | None = None
    """Why the probe failed; None where it succeeded."""
    headers: Mapping[str, str] = field(default_factory=dict)
    address_taken: bool = False
    """Whether a process of another user listens at the Pod's address."""


class _AddressTaken(OSError):
    """A process of another user listens at the Pod's address."""


async def send(target: RunningContainer, action: Mapping[str, Any], timeout: float) -> ProbeAnswer:
    """Return the outcome; a failure is an answer, not an exception.

    Args:
        target: the container.
        action: the handler of a core/v1 Probe or LifecycleHandler: `exec`, `httpGet`, `grpc` or `tcpSocket`.
        timeout: seconds for the connection and the answer, or for the command.
    """
    try:
        if "exec" in action:
            code = await exec_command.run(target, list(action["exec"].get("command") or []), timeout)
            return ProbeAnswer(None if code == 0 else f"command exited with {code}")
        async with asyncio.timeout(timeout):
            return await _ask_port(target, action, timeout)
    except _AddressTaken as error:
        return ProbeAnswer(str(error), address_taken=True)
    except TimeoutError:
        return ProbeAnswer(f"no answer within {timeout:g} s")
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return ProbeAnswer(str(error) or type(error).__name__)


async def _ask_port(target: RunningContainer, action: Mapping[str, Any], timeout: float) -> ProbeAnswer:
    if "httpGet" in action:
        return await _http_get(target, action["httpGet"])
    if "grpc" in action:
        return ProbeAnswer(await _grpc_check(target, action["grpc"], timeout))
    port = port_of(target.container, action["tcpSocket"]["port"])
    async with _connection(target, action["tcpSocket"].get("host"), port):
        return ProbeAnswer()


async def _grpc_check(target: RunningContainer, action: Mapping[str, Any], timeout: float) -> str | None:
    """Return why the server in the container is not healthy; None if it is."""
    port = int(action["port"])
    path = target.socket(port)
    if path is not None:
        return await grpc_health.problem(f"unix:{path}", action.get("service") or "", timeout)
    with _listener_checks(target.identity, port):
        return await _grpc_problem(target, port, action.get("service") or "", timeout)


async def _grpc_problem(target: RunningContainer, port: int, service: str, timeout: float) -> str | None:
    """Return why the server at the Pod's address is not healthy; None if it is."""
    address = target.identity.address
    name = f"{address}:{port}"
    if not replica_connections.is_marked(address):
        return await grpc_health.problem(f"ipv4:{name}", service, timeout)
    # The shim may let the port accept only connections with the mark, which gRPC cannot set on its sockets.
    async with replica_connections.tunnel(target.node.data_dir.pod_sockets, address, port) as path:
        return await grpc_health.problem(f"unix:{path}", service, timeout, authority=name)


async def _http_get(target: RunningContainer, action: dict[str, Any]) -> ProbeAnswer:
    host = action.get("host") or target.identity.address
    port = port_of(target.container, action["port"])
    context = None
    if action.get("scheme", "HTTP").upper() == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # as kubelet: the probe checks liveness, not identity
    path = _request_target(action.get("path") or "")
    headers = _request_headers(action, f"{host}:{port}")
    async with _connection(target, action.get("host"), port, context) as (reader, writer):
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        writer.write("\r\n".join(lines).encode())
        status_line = (await reader.readuntil(b"\n")).decode(errors="replace").split(None, 2)
        code = int(status_line[1]) if len(status_line) > 1 and status_line[1].isdigit() else 0
        problem = None if 200 <= code < 400 else f"HTTP status {code}"
        return ProbeAnswer(problem, await _read_headers(reader))


def _request_target(text: str) -> str:
    """Return the target of a request for `httpGet.path`, which may be percent-encoded and have a query.

    As kubelet's: it begins with a slash, other characters are percent-encoded, and a fragment is omitted.
    """
    path, mark, query = text.partition("#")[0].partition("?")
    path = quote(_BARE_PERCENT.sub("%25", path), safe=_PATH_CHARACTERS)
    slash = "" if path.startswith("/") else "/"
    return f"{slash}{path}{mark}{quote(query, safe=string.punctuation)}"


def _request_headers(action: Mapping[str, Any], host: str) -> list[tuple[str, str]]:
    """Return the headers of a probe. As kubelet's, their names have no case, and may occur several times.

    The first `Host` replaces `host`, if it has a value; the others are left out.
    """
    own = [(header["name"], header["value"]) for header in action.get("httpHeaders") or []]
    hosts = [value for name, value in own if name.lower() == "host"]
    sent = [(name, value) for name, value in own if name.lower() != "host"]
    names = {name.lower() for name, _ in sent}
    defaults = [(name, value) for name, value in _DEFAULT_HEADERS.items() if name.lower() not in names]
    return [("Host", next(iter(hosts), "") or host), *defaults, *sent]


@contextlib.asynccontextmanager
async def _connection(
    target: RunningContainer, host: str | None, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a port of the container, or of another host.

    A connection to the Pod's address has SO_MARK (`sockets.GATEWAY_MARK`) where this process may set it, as
    the shim may let the port accept only such connections.

    Args:
        target: the container.
        host: the host of the probe's spec; None for the Pod.
        port: the TCP port, or the port of the Pod's Unix socket.
        context: for TLS; None without TLS.

    Raises:
        OSError: nothing listens, or another user's process does.
    """
    is_pod = host is None or host == target.identity.address
    path = target.socket(port) if is_pod else None
    name = None if context is None else target.identity.address
    if path is not None:
        with sockets.short_path(path) as address:
            reader, writer = await asyncio.open_unix_connection(address, ssl=context, server_hostname=name)
    elif is_pod:
        connection = await replica_connections.connect(target.identity.address, port)
        reader, writer = await asyncio.open_connection(sock=connection, ssl=context, server_hostname=name)
    else:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    is_pod_address = is_pod and path is None
    try:
        with _listener_checks(target.identity, port) if is_pod_address else contextlib.nullcontext():
            yield reader, writer
    finally:
        writer.close()


@contextlib.contextmanager
def _listener_checks(identity: PodIdentity, port: int) -> Iterator[None]:
    """Check before and after the block that the Pod listens: the listener may change during the request."""
    _check_listener(identity, port)
    yield
    _check_listener(identity, port)


def _check_listener(identity: PodIdentity, port: int) -> None:
    """Raise _AddressTaken if another user's process listens at the Pod's address: any process may bind it."""
    pod_user = os.geteuid() if identity.user is None else identity.user
    user = socket_diag.listener(identity.address, port)
    if user not in (pod_user, None):
        raise _AddressTaken(
            f"{identity.address}:{port} is taken by a process of user {user}, not of this Pod"
        )


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        name, colon, value = (await reader.readline()).decode("latin-1").partition(":")
        if not colon:
            break
        headers[name.lower()] = value.strip()
    return headers
