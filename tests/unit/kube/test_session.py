"""Proxy settings of the connection from the environment."""

import asyncio
import base64

import aiohttp
import pytest

from serving.kube.connection.client import _session_options
from tests.rig.machine.tcp_server import tcp_server


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_session_does_not_read_the_environment_at_every_request() -> None:
    assert _session_options("https://127.0.0.1:7443") == {"trust_env": False, "proxy": None}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_from_the_environment_is_used_with_its_login(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    heads: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with tcp_server(refuse) as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://ann:s%40cret@127.0.0.1:{port}")
        host = f"{scheme}://cluster.example:6443"
        async with aiohttp.ClientSession(**_session_options(host)) as session:
            with pytest.raises(aiohttp.ClientResponseError) as raised:
                await session.get(host, raise_for_status=True)
    assert raised.value.status == 403
    (head,) = heads
    assert "cluster.example:6443" in head.splitlines()[0]
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'ann:s@cret').decode()}" in head.splitlines()


def test_host_in_no_proxy_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,cluster.example")
    assert _session_options("https://cluster.example:6443")["proxy"] is None


def test_proxy_of_the_kubeconfig_is_used_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "cluster.example")
    options = _session_options("https://cluster.example:6443", "http://tunnel.example:8080")
    assert options["proxy"] == "http://tunnel.example:8080"
