"""HTTP probes fail, and end, when a container sends an empty, malformed or endless status line or header."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, cast

import pytest

from serving import clock
from serving.embedded.apiserver import certificates
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import probe_client
from serving.embedded.kubelet.pod.probe_client import ProbeAnswer
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.settings import DEFAULTS as DEFAULT_SETTINGS
from tests.rig.machine.addresses import own

ADDRESS, PORT = own(80), 9000
TARGET = RunningContainer(cast("Node", None), "uid", {"name": "main"}, PodIdentity(ADDRESS, None), 0)
LONG = b"x" * 200_000
"""Longer than a line that asyncio's streams read."""


async def answer_to(content: bytes) -> ProbeAnswer:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(content)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, ADDRESS, PORT):
        return await probe_client.send(TARGET, {"httpGet": {"port": PORT, "path": "/"}}, 5.0)


async def request_of_a_probe(**fields: Any) -> list[str]:
    """Return the lines of the request of a probe with these fields of `httpGet`."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, ADDRESS, PORT):
        action = {"httpGet": {"port": PORT, **fields}}
        assert (await probe_client.send(TARGET, action, 5.0)).problem is None
    return requests[0].decode().strip().split("\r\n")


async def headers_of_a_probe(*pairs: tuple[str, str]) -> list[str]:
    """Return the headers of the request of a probe with these `httpHeaders`."""
    headers = [{"name": name, "value": value} for name, value in pairs]
    return (await request_of_a_probe(httpHeaders=headers))[1:]


async def test_https_probe_of_a_port_with_a_unix_socket_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.ensure(tmp_path / "tls", "127.0.0.1", DEFAULT_SETTINGS.api, clock.now())
    paths = certificates.files(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths.certificate, paths.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        writer.close()

    socket = tmp_path / "s"
    monkeypatch.setattr(RunningContainer, "socket", lambda *_: socket)
    async with await asyncio.start_unix_server(serve, socket, ssl=context):
        action = {"httpGet": {"port": PORT, "path": "/", "scheme": "HTTPS"}}
        assert (await probe_client.send(TARGET, action, 5.0)).problem is None


DEFAULTS = ["User-Agent: slipway-probe", "Accept: */*", "Connection: close"]


async def test_each_header_of_a_probe_is_sent_when_two_have_one_name() -> None:
    sent = await headers_of_a_probe(("X-Key", "a"), ("x-key", "b"), ("X-Key", "c"))
    assert sent == [f"Host: {ADDRESS}:{PORT}", *DEFAULTS, "X-Key: a", "x-key: b", "X-Key: c"]


async def test_header_of_a_probe_replaces_the_default_when_its_name_has_another_case() -> None:
    assert await headers_of_a_probe(("host", "a.example"), ("HOST", "b"), ("user-agent", "me")) == [
        "Host: a.example",
        "Accept: */*",
        "Connection: close",
        "user-agent: me",
    ]
    assert await headers_of_a_probe(("Host", "")) == [f"Host: {ADDRESS}:{PORT}", *DEFAULTS]


@pytest.mark.parametrize(
    "content",
    [LONG, LONG + b"\r\n", b"HTTP/1.1 200 OK\r\nx: " + LONG + b"\r\n\r\n", b"", b"\xff\n", b"HTTP/1.1 200"],
)
async def test_malformed_answer_is_a_failure_of_the_probe(content: bytes) -> None:
    assert (await answer_to(content)).problem


async def test_probe_succeeds_when_the_status_line_has_no_reason() -> None:
    assert (await answer_to(b"HTTP/1.1 200\r\n\r\n")).problem is None
    assert (await answer_to(b"HTTP/1.1 503\r\n\r\n")).problem == "HTTP status 503"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/"),
        ("healthz", "/healthz"),
        ("/a b", "/a%20b"),
        ("/a%20b/%zz", "/a%20b/%25zz"),
        ("/(ä);v=1:2", "/(%C3%A4);v=1:2"),
        ("/a\r\nX: y", "/a%0D%0AX:%20y"),
        ("/a?verbose=1&q={b}%20c d#e", "/a?verbose=1&q={b}%20c%20d"),
        ("?a", "/?a"),
    ],
)
async def test_target_of_a_probe_is_a_url_when_its_path_is_none(path: str, target: str) -> None:
    assert (await request_of_a_probe(path=path))[0] == f"GET {target} HTTP/1.1"


async def test_headers_of_a_successful_answer_are_read() -> None:
    answer = await answer_to(b"HTTP/1.1 200 OK\r\nX-Name: value\r\n\r\n")
    assert (answer.problem, answer.headers["x-name"]) == (None, "value")
