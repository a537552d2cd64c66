"""Pulls from registries that are down, slow, cut off or wrong: no partial image becomes visible."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving import errors
from serving.images.building.model_image import Built, build_image
from serving.images.registry import Credentials, Reference, Registry, pull, push
from serving.images.store.model_store import ModelStore
from serving.settings import DEFAULTS, RegistrySettings
from tests.rig.machine.faulty_proxy import FaultyProxy
from tests.rig.machine.ports import free_port
from tests.rig.servers.registry_server import RegistryServer

SETTINGS = replace(
    DEFAULTS.registry,
    backoff_base_seconds=0.01,
    backoff_cap_seconds=0.05,
    stall_seconds=1.0,
    chunk_bytes=300_000,
    piece_bytes=64 * 1024,
)
IMPATIENT = replace(SETTINGS, stall_seconds=0.4, attempts=3)
BIG = 1_500_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    running_server = RegistryServer(tmp_path_factory.mktemp("registry") / "server").start()
    yield running_server
    running_server.stop()


@pytest.fixture(scope="module")
def built(server: RegistryServer, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An image with two large layers and a small one, pushed as models/a:v1."""
    root = tmp_path_factory.mktemp("trained")
    for i in range(2):
        (root / f"weights-{i}").write_bytes(os.urandom(BIG))
    (root / "config.json").write_text("{}")
    store = ModelStore(tmp_path_factory.mktemp("source"))
    image = build_image(root, store, repository="r", lineage={})

    async def send() -> None:
        async with Registry(Credentials.none()) as registry:
            await push(registry, store, image.digest, Reference.parse(f"{server.host}/models/a:v1"))

    asyncio.run(send())
    return image


@pytest.fixture
async def proxy(server: RegistryServer) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(server.port) as running_proxy:
        yield running_proxy


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store")


async def fetch(
    proxy: FaultyProxy, store: ModelStore, built: Built, settings: RegistrySettings = SETTINGS
) -> str:
    async with Registry(Credentials.none(), settings) as registry:
        return await pull(registry, store, Reference.parse(f"{proxy.host}/models/a@{built.digest}"))


def assert_nothing_is_visible(store: ModelStore, built: Built) -> None:
    assert not store.has(built.digest)
    assert store.images() == []
    assert not [path for path in (store.root / "tmp").iterdir() if path.is_dir()]


async def test_unreachable_registry_is_reported_as_unavailable(store: ModelStore, built: Built) -> None:
    host = f"127.0.0.1:{free_port()}"
    async with Registry(Credentials.none(), SETTINGS) as registry:
        with pytest.raises(errors.Temporary) as raised:
            await pull(registry, store, Reference.parse(f"{host}/models/a@{built.digest}"))
    assert raised.value.reason == "RegistryUnavailable"
    assert host in str(raised.value)


async def test_pull_waits_for_a_registry_that_starts_in_time(tmp_path: Path, store: ModelStore) -> None:
    late_server = RegistryServer(tmp_path / "late")
    settings = replace(SETTINGS, attempts=200)
    async with Registry(Credentials.none(), settings) as registry:
        waiting = asyncio.ensure_future(pull(registry, store, Reference.parse(f"{late_server.host}/none:v1")))
        await asyncio.sleep(0)
        await asyncio.to_thread(late_server.start)
        try:
            with pytest.raises(errors.Permanent) as raised:
                await waiting
        finally:
            late_server.stop()
    assert raised.value.reason == "ImageNotFound"


async def test_broken_download_resumes_where_it_broke(
    proxy: FaultyProxy, store: ModelStore, built: Built
) -> None:
    proxy.faults.cut_answers_after, proxy.faults.cuts = 700_000, 3
    assert await fetch(proxy, store, built) == built.digest
    assert store.verify(built.digest, deep=True) == built.files
    assert proxy.faults.cuts == 0
    # When a connection ends too soon, aiohttp drops its buffer, at most twice `piece_bytes`.
    assert proxy.answers_bytes < 2 * BIG + 3 * 200_000, "received bytes were fetched again"


async def test_pull_fails_when_every_download_breaks_at_once(
    proxy: FaultyProxy, store: ModelStore, built: Built
) -> None:
    proxy.faults.cut_answers_after, proxy.faults.cuts = 1, 10_000
    with pytest.raises(errors.Temporary) as raised:
        await fetch(proxy, store, built)
    assert raised.value.reason == "RegistryUnavailable"
    assert_nothing_is_visible(store, built)


@pytest.mark.parametrize("at", [BIG // 2, 40_000, 600])
async def test_wrong_bytes_are_refused_and_the_pull_can_be_retried(
    proxy: FaultyProxy, store: ModelStore, built: Built, at: int
) -> None:
    proxy.faults.change_answer_byte = at
    with pytest.raises(errors.Temporary) as raised:
        await fetch(proxy, store, built)
    assert raised.value.reason in {"DigestMismatch", "RegistryUnavailable"}
    assert_nothing_is_visible(store, built)
    proxy.faults.change_answer_byte = None
    assert await fetch(proxy, store, built) == built.digest
    assert store.verify(built.digest, deep=True) == built.files


async def test_pull_from_a_trickling_registry_fails(
    proxy: FaultyProxy, store: ModelStore, built: Built
) -> None:
    proxy.faults.answer_bytes_per_second, proxy.faults.slow_after = 600.0, 5_000
    with pytest.raises(errors.Temporary, match="hardly anything") as raised:
        await asyncio.wait_for(fetch(proxy, store, built, IMPATIENT), 40)
    assert raised.value.reason == "RegistryUnavailable"
    assert_nothing_is_visible(store, built)


async def test_pull_from_a_slow_but_steady_registry_succeeds(
    proxy: FaultyProxy, store: ModelStore, built: Built
) -> None:
    proxy.faults.answer_bytes_per_second = 1_000_000.0
    assert await fetch(proxy, store, built, IMPATIENT) == built.digest
    assert proxy.connections <= 4, "a request was retried"


async def test_pull_from_a_silent_registry_fails(proxy: FaultyProxy, store: ModelStore, built: Built) -> None:
    proxy.faults.silent = True
    with pytest.raises(errors.Temporary, match="sent no response"):
        await asyncio.wait_for(fetch(proxy, store, built, IMPATIENT), 40)
    assert_nothing_is_visible(store, built)


async def test_cancelled_pull_from_a_silent_registry_ends_at_once(
    proxy: FaultyProxy, store: ModelStore, built: Built
) -> None:
    proxy.faults.hang_after = 400_000
    patient = replace(SETTINGS, stall_seconds=60.0)
    task = asyncio.ensure_future(fetch(proxy, store, built, patient))
    while proxy.answers_bytes < 800_000:
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    finished, _ = await asyncio.wait([task], timeout=10)
    assert finished
    assert task.cancelled()
    assert_nothing_is_visible(store, built)


async def test_cancelled_pull_leaves_nothing_and_logs_no_error(
    proxy: FaultyProxy, store: ModelStore, built: Built, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.faults.answer_bytes_per_second = 200_000.0
    task = asyncio.ensure_future(fetch(proxy, store, built))
    while proxy.answers_bytes < 100_000:
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_nothing_is_visible(store, built)
    gc.collect()  # a future whose error nobody has read is reported at its end
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    proxy.faults.answer_bytes_per_second = None
    assert await fetch(proxy, store, built) == built.digest


async def test_layers_are_downloaded_when_they_were_only_built_here(
    proxy: FaultyProxy, store: ModelStore, tmp_path: Path
) -> None:
    """Whoever knows the digest of a namespace's image must not get it by the manifest of a registry."""
    files, elsewhere = tmp_path / "files", ModelStore(tmp_path / "elsewhere")
    files.mkdir()
    (files / "weights").write_bytes(os.urandom(BIG))
    async with Registry(Credentials.none(), SETTINGS) as registry:
        downloaded = []
        for tag, name in (("v1", "a"), ("v2", "b")):
            (files / f"{name}.json").write_text("{}")
            image = build_image(files, elsewhere, repository="r", lineage={})
            await push(registry, elsewhere, image.digest, Reference.parse(f"{proxy.host}/models/own:{tag}"))
            if tag == "v1":
                assert build_image(files, store, repository="r", lineage={}).digest == image.digest
            before = proxy.answers_bytes
            await pull(registry, store, Reference.parse(f"{proxy.host}/models/own@{image.digest}"))
            downloaded.append(proxy.answers_bytes - before)
            assert store.verify(image.digest, deep=True) == image.files
    assert downloaded[0] > BIG
    assert downloaded[1] < BIG / 2, "a layer that came from a registry was downloaded again"
