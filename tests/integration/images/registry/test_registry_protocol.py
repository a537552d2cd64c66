"""Parts of the protocol that Debian's registry lacks: redirects, the referrers API, pages, and refusals."""

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from serving import clock, errors
from serving.embedded.apiserver import certificates
from serving.images.building.model_image import Built
from serving.images.documents import oci
from serving.images.documents.image import Blob
from serving.images.registry import (
    Credentials,
    Reference,
    Registry,
    blobs,
    manifests,
    pull,
    push,
    referrers,
)
from serving.images.registry.client import RegistryRequest
from serving.images.store.model_store import ModelStore
from serving.settings import DEFAULTS
from tests.fakes.registry import FakeRegistry
from tests.fakes.token_server import TokenServer


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry()


async def serve(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"127.0.0.1:{runner.addresses[0][1]}"


@pytest.fixture
async def target(fake: FakeRegistry) -> AsyncIterator[Reference]:
    runner, host = await serve(fake.app)
    yield Reference.parse(f"{host}/models/a:v1")
    await runner.cleanup()


async def test_no_referrers_tag_is_written_when_the_registry_lists_referrers(
    registry: Registry, fake: FakeRegistry, target: Reference, store: ModelStore, built: Built
) -> None:
    fake.page = 1
    await push(registry, store, built.digest, target)
    listed = await referrers.find(registry, target, built.digest)
    assert {entry["digest"] for entry in listed} == {built.modelpack_digest, built.lineage_digest}
    assert {name for name in fake.manifests if not name.startswith("sha256:")} == {"v1", "v1-modelpack"}


async def test_tag_is_written_last(
    registry: Registry, fake: FakeRegistry, target: Reference, store: ModelStore, built: Built
) -> None:
    await push(registry, store, built.digest, target)
    put_paths = [path for method, path in fake.log if method == "PUT"]
    assert put_paths.index("/v2/models/a/manifests/v1") == len(put_paths) - 1
    assert put_paths.index("/v2/models/a/manifests/v1-modelpack") == len(put_paths) - 2


async def test_another_host_never_sees_the_authorization(fake: FakeRegistry, target: Reference) -> None:
    data = b"layer"
    blob = Blob(oci.digest_of(data), len(data))
    authorizations: list[str | None] = []

    async def give(request: web.Request) -> web.Response:
        authorizations.append(request.headers.get("Authorization"))
        return web.Response(body=data)

    store_app = web.Application()
    store_app.router.add_get("/{digest}", give)
    runner, host = await serve(store_app)
    fake.redirect_blobs_to = f"http://{host}"
    fake.statuses[:] = [(401, {"WWW-Authenticate": 'Basic realm="x"'})]
    config = json.dumps({"auths": {target.host: {"username": "alice", "password": "s3cret"}}}).encode()
    try:
        async with Registry(Credentials.from_secret(config, "pull")) as registry:
            assert await blobs.read(registry, target, blob) == data
    finally:
        await runner.cleanup()
    assert authorizations == [None]
    assert [bool(authorization) for authorization in fake.authorizations] == [False, True]


async def test_expired_signed_url_is_requested_again(
    registry: Registry, fake: FakeRegistry, target: Reference
) -> None:
    data = b"layer"
    blob = Blob(oci.digest_of(data), len(data))
    statuses = [403, 200]

    async def give(_: web.Request) -> web.Response:
        return web.Response(status=statuses.pop(0), body=data)

    store_app = web.Application()
    store_app.router.add_get("/{digest}", give)
    runner, host = await serve(store_app)
    fake.redirect_blobs_to = f"http://{host}"
    try:
        assert await blobs.read(registry, target, blob) == data
    finally:
        await runner.cleanup()
    assert len(fake.log) == 2


async def test_error_of_a_refused_blob_has_the_explanation_of_its_server(
    registry: Registry, fake: FakeRegistry, target: Reference
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"errors": [{"code": "UNSUPPORTED", "message": "no layers"}]}, status=400)

    store_app = web.Application()
    store_app.router.add_get("/{digest}", refuse)
    runner, host = await serve(store_app)
    fake.redirect_blobs_to = f"http://{host}"
    try:
        with pytest.raises(errors.Permanent, match="answered 400: UNSUPPORTED no layers") as raised:
            await blobs.read(registry, target, Blob(oci.digest_of(b"layer"), 5))
    finally:
        await runner.cleanup()
    assert raised.value.reason == "RegistryRefused"


async def test_blob_longer_than_its_descriptor_is_refused(
    registry: Registry, fake: FakeRegistry, target: Reference
) -> None:
    data = bytes(30_000_000)
    fake.blobs[oci.digest_of(data)] = data
    received = bytearray()

    async def take(registry: Registry) -> None:
        async for chunk in blobs.chunks(registry, target, Blob(oci.digest_of(data), 5_000_000)):
            received.extend(chunk)

    with pytest.raises(errors.Temporary) as raised:
        await take(registry)
    assert raised.value.reason == "DigestMismatch"
    assert len(received) <= 5_000_000


async def test_additional_scopes_of_the_registry_are_requested(
    registry: Registry, fake: FakeRegistry, target: Reference, tmp_path: Path
) -> None:
    tokens = TokenServer(tmp_path, {})
    runner, host = await serve(tokens.app)
    challenge = (
        f'Bearer realm="http://{host}/token",service="s",scope="repository:models/a:pull special:thing:use"'
    )
    fake.statuses[:] = [(401, {"WWW-Authenticate": challenge})]
    try:
        assert not await blobs.exists(registry, target, "sha256:" + "0" * 64)
    finally:
        await runner.cleanup()
    assert tokens.issued_scopes == [{"repository:models/a:pull", "special:thing:use"}]


async def test_image_moves_when_registry_and_token_server_compress_all_that_a_request_allows(
    registry: Registry, fake: FakeRegistry, store: ModelStore, built: Built, tmp_path: Path
) -> None:
    @web.middleware
    async def compress(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if isinstance(response, web.Response) and response.body:
            response.enable_compression()  # if Accept-Encoding allows it
        return response

    tokens = TokenServer(tmp_path, {})
    token_app, registry_app = tokens.app, fake.app
    for app in (token_app, registry_app):
        app.middlewares.append(compress)
    token_runner, token_host = await serve(token_app)
    registry_runner, host = await serve(registry_app)
    target = Reference.parse(f"{host}/models/a:v1")
    fake.statuses[:] = [(401, {"WWW-Authenticate": f'Bearer realm="http://{token_host}/token"'})]
    try:
        await push(registry, store, built.digest, target)
        assert len(await referrers.find(registry, target, built.digest)) == 2
        assert await pull(registry, ModelStore(tmp_path / "other"), target) == built.digest
    finally:
        await registry_runner.cleanup()
        await token_runner.cleanup()
    assert tokens.issued_scopes


async def test_manifest_with_other_bytes_than_its_digest_is_refused(
    registry: Registry, fake: FakeRegistry, target: Reference, store: ModelStore, built: Built
) -> None:
    await push(registry, store, built.digest, target)
    fake.manifests[built.digest] += b" "
    with pytest.raises(errors.Temporary) as raised:
        await manifests.get(registry, target.at(built.digest))
    assert raised.value.reason == "DigestMismatch"


@pytest.mark.parametrize(
    "index",
    [
        {"manifests": []},
        {"manifests": "x"},
        {"manifests": [1, {"digest": "no"}]},
        {
            "manifests": [
                {"digest": "sha256:" + c * 64, "platform": {"os": "linux", "architecture": "s390x"}}
                for c in "ab"
            ]
        },
        {"manifests": [{"digest": "sha256:" + "a" * 64, "platform": {"os": "unknown"}}]},
    ],
)
async def test_index_without_an_image_for_linux_amd64_is_refused(
    registry: Registry, fake: FakeRegistry, target: Reference, store: ModelStore, index: dict[str, object]
) -> None:
    fake.manifests["v1"] = json.dumps({"mediaType": oci.INDEX_TYPE, **index}).encode()
    with pytest.raises(errors.Permanent) as raised:
        await pull(registry, store, target)
    assert raised.value.reason == "InvalidImage"
    assert "linux/amd64" in str(raised.value)


def test_plain_http_is_used_for_this_machine_only() -> None:
    def scheme(host: str) -> str:
        return Registry(Credentials.none()).base(Reference.parse(f"{host}/a")).scheme

    assert scheme("127.0.0.1:5000") == scheme("localhost:5000") == "http"
    assert scheme("r.example") == scheme("10.0.0.1:5000") == "https"


async def test_untrusted_certificate_is_a_permanent_error(
    registry: Registry, fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.ensure(tmp_path, "127.0.0.1", DEFAULTS.api, clock.now())
    issued = certificates.files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    runner = web.AppRunner(fake.app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    monkeypatch.setattr(Reference, "loopback", False)
    target = Reference.parse(f"127.0.0.1:{runner.addresses[0][1]}/a")
    try:
        with pytest.raises(errors.Permanent) as raised:
            await manifests.get(registry, target)
    finally:
        await runner.cleanup()
    assert raised.value.reason == "UntrustedCertificate"
    assert not fake.log


def test_redirect_to_plain_http_on_another_host_is_refused() -> None:
    registry = Registry(Credentials.none())
    call = RegistryRequest("GET", Reference.parse("r.example/a"))
    assert registry._secured(call, URL("https://cdn.example/x")) == URL("https://cdn.example/x")
    assert registry._secured(call, URL("http://r.example/v2/a/x?y=1")) == URL("https://r.example/v2/a/x?y=1")
    with pytest.raises(errors.Permanent) as raised:
        registry._secured(call, URL("http://cdn.example/x"))
    assert raised.value.reason == "InsecureRegistry"
