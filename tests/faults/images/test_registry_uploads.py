"""Interrupted uploads resume at the offset of the registry, and end with the right bytes or an error."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from serving import errors
from serving.images.documents.image import Blob
from serving.images.registry import Credentials, Reference, Registry, blobs, uploads
from serving.settings import DEFAULTS, RegistrySettings
from tests.fakes.registry import FakeRegistry
from tests.rig.machine.faulty_proxy import FaultyProxy
from tests.rig.servers.registry_server import RegistryServer

SETTINGS = replace(
    DEFAULTS.registry, backoff_base_seconds=0.01, backoff_cap_seconds=0.05, chunk_bytes=300_000
)
DATA = os.urandom(1_000_000)
BLOB = Blob(f"sha256:{hashlib.sha256(DATA).hexdigest()}", len(DATA))


def blob_chunks() -> Iterator[bytes]:
    return (DATA[start : start + 70_000] for start in range(0, len(DATA), 70_000))


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
async def target(fake: FakeRegistry) -> AsyncIterator[Reference]:
    runner = web.AppRunner(fake.app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Reference.parse(f"127.0.0.1:{runner.addresses[0][1]}/models/a")
    await runner.cleanup()


async def upload(target: Reference, settings: RegistrySettings = SETTINGS) -> None:
    async with Registry(Credentials.none(), settings) as registry:
        await uploads.upload(registry, target, BLOB, blob_chunks)


async def test_upload_cut_inside_a_chunk_resumes_at_the_offset_of_the_registry(
    fake: FakeRegistry, target: Reference
) -> None:
    fake.cut_patches[:] = [100_000, 299_999, 1]
    await upload(target)
    assert fake.blobs[BLOB.digest] == DATA
    assert fake.received == len(DATA)
    assert not fake.uploads


async def test_upload_that_breaks_often_but_progresses_succeeds(
    fake: FakeRegistry, target: Reference
) -> None:
    never = 10**9
    fake.cut_patches[:] = [50_000, never] * (SETTINGS.attempts + 2)
    await upload(target, replace(SETTINGS, chunk_bytes=60_000))
    assert fake.blobs[BLOB.digest] == DATA
    assert fake.received == len(DATA)


async def test_upload_that_the_registry_forgot_restarts(fake: FakeRegistry, target: Reference) -> None:
    original = fake._patch

    async def forget(request: web.Request, name: str, upload_bytes: bytearray) -> web.StreamResponse:
        response = await original(request, name, upload_bytes)
        if len(upload_bytes) == 600_000:
            fake.uploads.clear()
            fake._patch = original  # type: ignore[method-assign]
        return response

    fake._patch = forget  # type: ignore[method-assign]
    await upload(target)
    assert fake.blobs[BLOB.digest] == DATA
    assert fake.received == 600_000 + len(DATA)


async def test_upload_fails_when_the_registry_discards_every_chunk(
    fake: FakeRegistry, target: Reference
) -> None:
    fake.deaf = True
    with pytest.raises(errors.Temporary):
        await asyncio.wait_for(upload(target), 30)
    assert [method for method, _ in fake.log].count("PATCH") == SETTINGS.attempts


async def test_upload_that_restarts_every_time_fails(fake: FakeRegistry, target: Reference) -> None:
    never = 10**9
    fake.forgets, fake.cut_patches[:] = True, [never, 100_000] * 50
    with pytest.raises(errors.Temporary):
        await asyncio.wait_for(upload(target), 30)
    assert len(fake.cut_patches) > 50


async def test_lost_response_to_the_last_request_repeats_no_upload(
    fake: FakeRegistry, target: Reference
) -> None:
    fake.lose_answers = 1
    await upload(target)
    assert fake.blobs[BLOB.digest] == DATA
    assert fake.received == len(DATA)


async def test_chunks_have_the_minimum_length_of_the_registry(fake: FakeRegistry, target: Reference) -> None:
    fake.chunk_min = 450_000
    await upload(target)
    assert fake.blobs[BLOB.digest] == DATA
    assert [method for method, _ in fake.log].count("PATCH") <= 3


async def test_chunks_have_the_minimum_length_of_the_registry_when_a_mount_begins_the_upload(
    fake: FakeRegistry, target: Reference
) -> None:
    fake.chunk_min = 450_000
    async with Registry(Credentials.none(), SETTINGS) as registry:
        begun = await blobs.mount(registry, target, BLOB.digest, "models/b")
        await uploads.upload(registry, target, BLOB, lambda: [DATA], begun)
    assert fake.blobs[BLOB.digest] == DATA
    assert [method for method, _ in fake.log].count("PATCH") <= 3


async def test_failed_upload_is_cancelled_at_the_registry(fake: FakeRegistry, target: Reference) -> None:
    fake.cut_patches[:] = [0] * 50
    with pytest.raises(errors.Temporary) as raised:
        await upload(target)
    assert raised.value.reason == "RegistryUnavailable"
    assert fake.log[-1][0] == "DELETE"
    assert not fake.uploads
    assert len([method for method, _ in fake.log if method == "PATCH"]) == SETTINGS.attempts


async def test_cancelled_upload_is_cancelled_at_the_registry(fake: FakeRegistry, target: Reference) -> None:
    original, reached, released = fake._patch, asyncio.Event(), asyncio.Event()

    async def hang(request: web.Request, name: str, upload_bytes: bytearray) -> web.StreamResponse:
        reached.set()
        await released.wait()
        return await original(request, name, upload_bytes)

    fake._patch = hang  # type: ignore[method-assign]
    task = asyncio.ensure_future(upload(target))
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    released.set()
    assert not fake.uploads


async def test_bytes_of_another_digest_are_refused_with_a_reason(
    fake: FakeRegistry, target: Reference
) -> None:
    async with Registry(Credentials.none(), SETTINGS) as registry:
        with pytest.raises(errors.Temporary) as raised:
            await uploads.upload(registry, target, BLOB, lambda: [bytes(len(DATA))])
        assert raised.value.reason == "DigestMismatch"
        with pytest.raises(errors.Permanent, match="ends after"):
            await uploads.upload(registry, target, BLOB, lambda: [DATA[:-1]])
    assert not fake.blobs


async def test_real_registry_refuses_bytes_changed_in_transit(tmp_path: Path) -> None:
    server = RegistryServer(tmp_path / "server").start()
    target = Reference.parse(f"{server.host}/changed/a")
    try:
        async with Registry(Credentials.none(), SETTINGS) as registry:
            with pytest.raises(errors.Temporary) as raised:
                await uploads.upload(registry, target, BLOB, lambda: [bytes(len(DATA))])
            assert not await blobs.exists(registry, target, BLOB.digest)
    finally:
        server.stop()
    assert raised.value.reason == "DigestMismatch"


async def test_upload_waits_for_retry_after(fake: FakeRegistry, target: Reference) -> None:
    fake.statuses[:] = [(429, {"Retry-After": "1"}), (503, {})]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await upload(target)
    assert loop.time() - began >= 1.0
    assert fake.blobs[BLOB.digest] == DATA


async def test_long_retry_after_is_left_to_the_caller(fake: FakeRegistry, target: Reference) -> None:
    fake.statuses[:] = [(429, {"Retry-After": "3600"})]
    with pytest.raises(errors.Temporary) as raised:
        await upload(target)
    assert raised.value.retry_after == 3600.0
    assert len(fake.log) == 1


async def test_upload_completes_when_the_registry_is_killed_and_restarted(tmp_path: Path) -> None:
    server = RegistryServer(tmp_path / "server").start()
    target = Reference.parse(f"{server.host}/killed/a")
    settings = replace(SETTINGS, attempts=50, chunk_bytes=100_000)
    sent = 0

    def killing() -> Iterator[bytes]:
        nonlocal sent
        for part in blob_chunks():
            sent += len(part)
            if sent == 490_000:
                server.kill()
                server.start()
            yield part

    try:
        async with Registry(Credentials.none(), settings) as registry:
            await uploads.upload(registry, target, BLOB, killing)
            assert await blobs.read(registry, target, BLOB) == DATA
    finally:
        server.stop()
    patches = [line for line in server.requests() if line.startswith("PATCH")]
    assert len({line.rsplit("/", 1)[1] for line in patches}) == 1, "the upload began anew"


async def test_blob_is_uploaded_again_when_the_registry_drops_a_cut_upload(tmp_path: Path) -> None:
    server = RegistryServer(tmp_path / "server").start()
    try:
        async with FaultyProxy(server.port) as proxy:
            proxy.faults.cut_requests_after, proxy.faults.cuts = 450_000, 2
            target = Reference.parse(f"{proxy.host}/cut/a")
            async with Registry(Credentials.none(), SETTINGS) as registry:
                await uploads.upload(registry, target, BLOB, blob_chunks)
                assert await blobs.read(registry, target, BLOB) == DATA
            assert proxy.faults.cuts == 0
    finally:
        server.stop()
