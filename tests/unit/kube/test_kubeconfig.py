"""Kubeconfigs: their certificates and keys are never in a file of the temporary directory."""

import asyncio
import base64
import json
import ssl
import tempfile
from pathlib import Path

import pytest

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.apiserver import certificates
from serving.kube import connect
from serving.kube.connection.client import Configuration, Kube
from serving.kube.connection.kubeconfig import load
from serving.objects import Object
from serving.settings import DEFAULTS
from tests.rig.machine.tcp_server import tcp_server

PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def written(path: Path, user: Object | None = None, **cluster: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_authority_in_data_is_in_no_file(tmp_path: Path, temporary: Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    configuration = Configuration()
    await load(configuration, written(tmp_path / "config", **{"certificate-authority-data": data}))
    assert configuration.ca_cert_data == PEM
    assert configuration.ssl_ca_cert is None
    assert files(temporary) == []


async def test_client_certificate_and_key_in_data_are_in_no_file(tmp_path: Path, temporary: Path) -> None:
    certificates.ensure(tmp_path / "tls", "cluster.example", DEFAULTS.api, clock.now())
    issued = certificates.files(tmp_path / "tls")
    user = {
        "client-certificate-data": base64.b64encode(issued.certificate.read_bytes()).decode(),
        "client-key-data": base64.encodebytes(issued.key.read_bytes()).decode(),
    }
    configuration = Configuration()
    await load(configuration, written(tmp_path / "config", user))
    assert files(temporary) == []
    for _ in range(2):
        async with Kube(configuration, field_manager="test"):
            pass


@pytest.mark.parametrize("name", ["client-certificate-data", "client-key-data"])
async def test_damaged_client_certificate_is_an_error_with_its_field(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "config", {name: "%"})
    with pytest.raises(errors.UserError, match=f"{name} is not base64"):
        await connect(path, component="test")


async def test_authority_in_a_file_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    configuration = Configuration()
    await load(configuration, written(tmp_path / "config", **{"certificate-authority": "ca.crt"}))
    assert configuration.ssl_ca_cert == str(tmp_path / "ca.crt")


async def test_damaged_authority_is_an_error_with_its_field(tmp_path: Path) -> None:
    path = written(tmp_path / "config", **{"certificate-authority-data": "%"})
    with pytest.raises(errors.UserError, match="certificate-authority-data"):
        await connect(path, component="test")


async def test_client_of_the_embedded_api_leaves_no_file(api_server: DataDir, temporary: Path) -> None:
    async with await connect(api_server.kubeconfig, component="test") as kube:
        assert await kube.raw("/healthz") == b"ok"
    assert files(temporary) == []


async def test_proxy_of_the_cluster_is_that_of_the_connection(tmp_path: Path) -> None:
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with tcp_server(answer) as port:
        proxy = {"proxy-url": f"http://127.0.0.1:{port}", "server": "http://cluster.example"}
        async with await connect(written(tmp_path / "config", **proxy), component="test") as kube:
            assert await kube.raw("/version") == b"ok"
    assert heads[0].splitlines()[0] == "GET http://cluster.example/version HTTP/1.1"


async def test_proxy_of_another_kind_is_an_error_with_its_field(tmp_path: Path) -> None:
    path = written(tmp_path / "config", **{"proxy-url": "socks5://127.0.0.1:1080"})
    with pytest.raises(
        errors.UserError, match=r"proxy-url: must begin with http:// or https://, got 'socks5:"
    ):
        await connect(path, component="test")


async def test_tls_server_name_is_the_name_of_the_certificate(tmp_path: Path) -> None:
    names: list[str | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    certificates.ensure(tmp_path / "tls", "cluster.example", DEFAULTS.api, clock.now())
    issued = certificates.files(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    context.sni_callback = lambda _connection, name, _context: names.append(name)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        cluster = {
            "server": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "certificate-authority": str(issued.ca),
            "tls-server-name": "cluster.example",
        }
        async with await connect(written(tmp_path / "config", **cluster), component="test") as kube:
            assert await kube.raw("/version") == b"ok"
    assert names == ["cluster.example"]


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # of kubernetes.aio
@pytest.mark.parametrize(("expiry", "runs"), [("2020-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1)])
async def test_plugin_runs_again_when_its_token_has_expired(tmp_path: Path, expiry: str, runs: int) -> None:
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    version = "client.authentication.k8s.io/v1"
    status = f'{{"token": "token-%d", "expirationTimestamp": "{expiry}"}}'
    credential = f'{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {status}}}'
    script = f"echo >> {tmp_path}/runs; printf '{credential}' $(wc -l < {tmp_path}/runs)"
    plugin = {"apiVersion": version, "command": "/bin/sh", "args": ["-c", script]}
    async with tcp_server(answer) as port:
        path = written(tmp_path / "config", {"exec": plugin}, server=f"http://127.0.0.1:{port}")
        async with await connect(path, component="test") as kube:
            for _ in range(2):
                await kube.raw("/version")
    assert f"token-{runs}" in heads[-1]
    assert len((tmp_path / "runs").read_text()) == runs
