"""Logins: Basic, tokens per scope that run out, identity tokens, credential helpers."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from serving import errors
from serving.controllers.models.image_transfer import ImageTransfer
from serving.embedded.kubelet.container.image_volumes import ImageVolumes
from serving.images.building.model_image import Built
from serving.images.registry import Credentials, Pushed, Reference, Registry, manifests, pull, push
from serving.images.registry.auth.docker_config import DockerConfig
from serving.images.store.model_store import ModelStore
from serving.resources.model import ModelSpec
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube
from tests.fakes.registry import FakeRegistry
from tests.fakes.token_server import TokenServer
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.registry_server import PASSWORD, USER, RegistryServer

QUICK = replace(DEFAULTS.registry, backoff_base_seconds=0.01, chunk_bytes=200_000)


def docker_config(host: str, user: str, password: str) -> dict[str, object]:
    return {"auths": {host: {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}}}


def secret(host: str, user: str = USER, password: str = PASSWORD) -> Credentials:
    return Credentials.from_secret(json.dumps(docker_config(host, user, password)).encode(), "pull")


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    server = RegistryServer.with_htpasswd(tmp_path_factory.mktemp("basic") / "server").start()
    yield server
    server.stop()


@pytest.fixture
def tokens(tmp_path: Path) -> TokenServer:
    return TokenServer(tmp_path, {USER: PASSWORD})


@pytest.fixture
async def realm(tokens: TokenServer) -> AsyncIterator[str]:
    runner = web.AppRunner(tokens.app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    await runner.cleanup()


@pytest.fixture
async def guarded(tmp_path: Path, tokens: TokenServer, realm: str) -> AsyncIterator[RegistryServer]:
    server = RegistryServer(tmp_path / "guarded", tokens.auth_settings(realm)).start()
    yield server
    server.stop()


Send = Callable[..., Awaitable[Pushed]]


@pytest.fixture
def target(guarded: RegistryServer) -> Reference:
    return Reference.parse(f"{guarded.host}/token/a:v1")


@pytest.fixture
def send(target: Reference, store: ModelStore, built: Built) -> Send:
    """Pushes the image by a client of its own with a login, arguments as for `push`."""

    async def push_image(to: Reference = target, credentials: Credentials | None = None, **options) -> Pushed:
        async with Registry(credentials or secret(to.host), QUICK) as registry:
            return await push(registry, store, built.digest, to, **options)

    return push_image


async def test_basic_login_of_a_secret_is_used(
    basic: RegistryServer, store: ModelStore, built: Built, tmp_path: Path
) -> None:
    target = Reference.parse(f"{basic.host}/basic/login:v1")
    async with Registry(secret(basic.host)) as registry:
        await push(registry, store, built.digest, target)
        assert await pull(registry, ModelStore(tmp_path / "other"), target) == built.digest


@pytest.mark.parametrize("credentials", ["none", "wrong"])
async def test_push_without_a_valid_login_is_refused_with_the_reason(
    basic: RegistryServer, store: ModelStore, built: Built, credentials: str
) -> None:
    target = Reference.parse(f"{basic.host}/basic/refused:v1")
    used = Credentials.none() if credentials == "none" else secret(basic.host, password="wrong")
    async with Registry(used, QUICK) as registry:
        with pytest.raises(errors.Permanent) as raised:
            await push(registry, store, built.digest, target)
    assert raised.value.reason == "Unauthorized"
    assert basic.host in str(raised.value)
    assert "wrong" not in str(raised.value)


async def test_one_token_serves_a_whole_push(tokens: TokenServer, send: Send) -> None:
    await send()
    assert (
        len([scopes for scopes in tokens.issued_scopes if any(scope.endswith(",push") for scope in scopes)])
        == 1
    )


async def test_mount_requests_both_repositories_in_one_token(
    tokens: TokenServer, target: Reference, send: Send
) -> None:
    await send()
    second_push = await send(target.sibling("token/second").tagged("v1"), mount_from=["token/a"])
    assert second_push.bytes_uploaded == 0
    scopes_needed = {"repository:token/second:pull,push", "repository:token/a:pull"}
    assert any(scopes_needed <= scopes for scopes in tokens.issued_scopes)


async def test_layers_are_uploaded_when_the_other_repository_is_not_readable(
    tokens: TokenServer, target: Reference, send: Send
) -> None:
    await send()
    tokens.denied.add("token/a")
    second_push = await send(target.sibling("token/open").tagged("v1"), mount_from=["token/a"])
    assert second_push.bytes_mounted == 0
    assert second_push.bytes_uploaded > 3_000_000


async def test_expired_tokens_are_renewed_during_a_push(tokens: TokenServer, send: Send) -> None:
    tokens.lifetime = 60.0
    tokens.claimed_lifetime = 0.001
    await send()
    assert len(tokens.issued_scopes) > 10


async def test_token_that_the_registry_rejects_is_renewed(
    guarded: RegistryServer,
    target: Reference,
    tokens: TokenServer,
    store: ModelStore,
    built: Built,
    tmp_path: Path,
) -> None:
    async with Registry(secret(guarded.host)) as registry:
        await push(registry, store, built.digest, target)
        tokens_before = len(tokens.issued_scopes)
        tokens.new_key()
        guarded.stop()
        guarded.start()
        assert await pull(registry, ModelStore(tmp_path / "other"), target) == built.digest
    assert len(tokens.issued_scopes) == tokens_before + 1


async def test_pull_fails_after_one_retry_when_every_token_is_rejected(
    target: Reference, tokens: TokenServer, store: ModelStore
) -> None:
    tokens.lifetime, tokens.claimed_lifetime = -3600.0, 300.0
    async with Registry(secret(target.host), QUICK) as registry:
        with pytest.raises(errors.Permanent, match="not allowed to pull") as raised:
            await pull(registry, store, target)
    assert raised.value.reason == "Unauthorized"
    assert len(tokens.issued_scopes) == 1


async def test_identity_token_is_exchanged(target: Reference, tokens: TokenServer, send: Send) -> None:
    tokens.refresh_tokens["refresh"] = USER
    config = {
        "auths": {target.host: {"auth": base64.b64encode(b"<token>:").decode(), "identitytoken": "refresh"}}
    }
    await send(credentials=Credentials.from_secret(json.dumps(config).encode(), "pull"))
    assert tokens.issued_scopes


async def test_request_to_a_busy_token_server_is_retried(tokens: TokenServer, send: Send) -> None:
    tokens.failures[:] = [503, 429]
    await send()
    assert not tokens.failures


@pytest.mark.parametrize("login", ["password", "identity token"])
async def test_a_token_server_is_asked_by_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    lines: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    fake = FakeRegistry()
    challenge = {"WWW-Authenticate": 'Bearer realm="https://tokens.example/token",service="s"'}
    fake.statuses[:] = [(401, challenge)] * 2
    runner = web.AppRunner(fake.app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host = f"127.0.0.1:{runner.addresses[0][1]}"
    credentials = secret(host)
    if login == "identity token":
        auths = {host: {"auth": base64.b64encode(b"<token>:").decode(), "identitytoken": "refresh"}}
        credentials = Credentials.from_secret(json.dumps({"auths": auths}).encode(), "pull")
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    try:
        async with (
            tcp_server(refuse) as port,
            Registry(credentials, replace(QUICK, attempts=1)) as registry,
        ):
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
            with pytest.raises(errors.Temporary):
                await manifests.get(registry, Reference.parse(f"{host}/a:v1"))
    finally:
        await runner.cleanup()
    assert set(lines) == {"CONNECT tokens.example:443 HTTP/1.1"}


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A credential helper `docker-credential-test` whose program the test writes."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "test"}))
    path = programs / "docker-credential-test"
    path.touch(0o755)
    return path


REFERENCE = Reference.parse("r.example:5000/a")


def test_helper_is_called_with_the_host(helper: Path, tmp_path: Path) -> None:
    output = json.dumps({"ServerURL": "x", "Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\necho \"$1 $(cat)\" >> {tmp_path}/asked\necho '{output}'\n")
    login = asyncio.run(Credentials.from_docker().login(REFERENCE))
    assert login is not None
    assert (login.username, login.password) == (USER, PASSWORD)
    assert (tmp_path / "asked").read_text() == "get r.example:5000\n"


def test_helper_returns_an_identity_token_or_no_login(helper: Path) -> None:
    helper.write_text('#!/bin/sh\necho \'{"Username": "<token>", "Secret": "refresh"}\'\n')
    login = asyncio.run(Credentials.from_docker().login(REFERENCE))
    assert login is not None
    assert login.identity_token == "refresh"
    helper.write_text("#!/bin/sh\necho credentials not found in native keychain\nexit 1\n")
    assert asyncio.run(Credentials.from_docker().login(REFERENCE)) is None


def test_helper_that_hangs_or_fails_is_a_temporary_error(helper: Path, tmp_path: Path) -> None:
    helper.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    credentials = Credentials(lambda: DockerConfig(creds_store="test"), helper_seconds=0.3)
    with pytest.raises(errors.Temporary, match=r"did not answer within 0\.3 s"):
        asyncio.run(credentials.login(REFERENCE))
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    helper.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(errors.Temporary, match="failed with 3"):
        asyncio.run(Credentials.from_docker().login(REFERENCE))


def test_helper_of_the_node_and_of_the_controllers_has_the_seconds_of_the_settings(
    helper: Path, tmp_path: Path
) -> None:
    helper.write_text("#!/bin/sh\nexec sleep 60\n")
    kube, store = FakeKube(), ModelStore(tmp_path)
    settings = replace(DEFAULTS.registry, helper_seconds=0.3)

    async def of_node() -> Credentials:
        return await ImageVolumes(kube, store, settings)._credentials({"spec": {}})

    async def of_controllers() -> Credentials:
        model = ModelSpec.model_validate({})
        return await ImageTransfer(kube, store, settings)._credentials("default", model)

    async def login(credentials: Callable[[], Awaitable[Credentials]]) -> None:
        await (await credentials()).login(REFERENCE)

    for credentials in (of_node, of_controllers):
        with pytest.raises(errors.Temporary, match=r"did not answer within 0\.3 s"):
            asyncio.run(login(credentials))


def test_missing_or_malformed_helper_is_a_permanent_error(
    helper: Path,
) -> None:
    helper.write_text("#!/bin/sh\necho nonsense\n")
    with pytest.raises(errors.Permanent, match="must answer"):
        asyncio.run(Credentials.from_docker().login(REFERENCE))
    helper.unlink()
    with pytest.raises(errors.Permanent, match="docker-credential-test cannot be run"):
        asyncio.run(Credentials.from_docker().login(REFERENCE))


def test_no_configuration_means_anonymous(tmp_path: Path) -> None:
    assert asyncio.run(Credentials.from_docker(tmp_path / "none").login(REFERENCE)) is None
