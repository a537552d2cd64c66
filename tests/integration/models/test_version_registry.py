"""ModelVersions that are pushed to and pulled from a registry: Debian's docker-registry."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from serving import errors
from serving.images.registry import Credentials, Reference, Registry, manifests
from serving.images.store.model_store import ModelStore
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from tests.objects.models.signing_keys import key_pair
from tests.rig.control_plane.model_controllers import ModelLife
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.registry_server import PASSWORD, USER, RegistryServer

Files = Callable[..., str]
pytestmark = pytest.mark.timeout(60)


def encoded(**data: str) -> dict[str, str]:
    """Return the data of a Secret; `_` stands for the dots of its keys."""
    return {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}


async def tagged(image: str) -> str:
    """Return the digest of a tag in the registry."""
    async with Registry(Credentials.none()) as client:
        manifest = await manifests.find(client, Reference.parse(image))
        assert manifest is not None, image
        return str(manifest.digest)


async def pushed(life: ModelLife, registry: RegistryServer, path: str) -> Object:
    """Return the status of the version v1 of these files, whose Model `digits` has a registry."""
    await life.with_registry(registry.host)
    await life.version("v1", path=path)
    return await life.ready("v1")


async def test_a_built_version_is_pushed_with_its_name_as_tag_and_referenced_by_digest(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    repository = f"{registry.host}/models/digits"
    status = await pushed(life, registry, files())
    assert status["image"] == f"{repository}@{status['digest']}"
    assert await tagged(f"{repository}:v1") == status["digest"]
    assert life.store.origin(status["digest"]) == status["image"]


async def test_an_image_becomes_a_version_with_its_files_and_its_digest(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    repository, path = f"{registry.host}/models/digits", files()
    (Path(path) / "slipway.json").write_text('{"framework": "sklearn", "metrics": {"accuracy": 0.5}}')
    built = await pushed(life, registry, path)
    await life.delete(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL_VERSION, "v1")
    assert not life.store.has(built["digest"])
    await life.version("again", "other", image=f"{repository}:v1")
    status = await life.ready("again")
    for field in ("image", "digest", "size", "files", "contents", "framework", "metrics"):
        assert status[field] == built[field], field
    assert status["lineage"]["image"] == f"{repository}:v1@{built['digest']}"
    assert life.store.verify(built["digest"], deep=True)


async def test_the_image_of_a_failed_version_is_removed(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    path = files()
    (Path(path) / "slipway.json").write_text('{"framework": "sklearn"}')
    image = await pushed(life, registry, path)
    await life.delete(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL_VERSION, "v1")
    spec = {"modelName": "other", "framework": "pytorch", "source": {"image": image["image"]}}
    await life.create(kinds.MODEL_VERSION, "v2", spec)
    assert (await life.failed("v2"))[0] == "InvalidManifest"
    async with asyncio.timeout(20):
        while life.store.images():
            await asyncio.sleep(0.03)
    assert life.store.owners() == set()


async def test_a_push_is_retried_and_counted_while_the_registry_is_away(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    registry.stop()
    await life.with_registry(registry.host)
    await life.version("v1", path=files())
    waiting = await life.until("v1", lambda v: v.get("status", {}).get("attempts", 0) >= 2)
    ready = conditions.find(waiting["status"]["conditions"], "Ready")
    assert ready is not None
    assert (waiting["status"]["phase"], ready["reason"]) == ("Building", "RegistryUnavailable")
    assert "of 30, the next in" in ready["message"]
    await life.announced("v1", "RegistryUnavailable")
    registry.start()
    assert (await life.ready("v1"))["attempts"] >= 2


async def test_a_version_becomes_ready_when_its_secret_is_created_later(
    life: ModelLife, files: Files, tmp_path: Path
) -> None:
    registry = RegistryServer.with_htpasswd(tmp_path / "locked").start()
    try:
        policy = {"registry": {"repository": f"{registry.host}/models/digits", "secretName": "login"}}
        await life.create(kinds.MODEL, "digits", policy)
        await life.version("v1", path=files())
        await life.announced("v1", "SecretNotFound")
        await life.create(kinds.SECRET, "login", {}, data={})
        await life.announced("v1", "InvalidSecret")
        login = {"auths": {registry.host: {"username": USER, "password": PASSWORD}}}
        data = encoded(_dockerconfigjson=json.dumps(login))
        await life.kube.patch(kinds.SECRET, life.namespace, "login", {"data": data})
        await life.ready("v1")
    finally:
        registry.stop()


async def test_a_version_says_that_its_secret_may_not_be_read_and_tries_again_with_pauses(
    life: ModelLife, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, reads = Kube.get, []

    async def refused(kube: Kube, kind: kinds.Kind, namespace: str | None, name: str) -> Object:
        if kind is not kinds.SECRET:
            return await get(kube, kind, namespace, name)
        reads.append(name)
        message = f'secrets "{name}" is forbidden: User "controllers" cannot get it'
        raise errors.Forbidden(403, "Forbidden", message)

    monkeypatch.setattr(Kube, "get", refused)
    registry = RegistryServer.with_htpasswd(tmp_path / "locked").start()
    try:
        policy = {"registry": {"repository": f"{registry.host}/models/digits", "secretName": "login"}}
        await life.create(kinds.MODEL, "digits", policy)
        await life.version("v1", path=files())
        await life.announced("v1", "SecretForbidden")
        stored = await life.kube.get(kinds.MODEL_VERSION, life.namespace, "v1")
        condition = conditions.find(stored["status"]["conditions"], "Ready") or {}
        assert condition["reason"] == "SecretForbidden"
        assert 'User "controllers" cannot get it' in condition["message"]
        before = len(reads)
        await asyncio.sleep(1.0)
        assert len(reads) - before <= 10, "each attempt waits twice as long as the one before"
    finally:
        registry.stop()


async def test_only_images_signed_by_a_trusted_key_become_versions(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    key = key_pair()
    await life.with_signing("signed", registry.host, key)
    await life.with_registry(registry.host, "unsigned")
    await life.create(kinds.MODEL, "careful", {"verification": {"keys": [key_pair().public, key.public]}})
    await life.version("good", "signed", path=files("a", model="good"))
    await life.version("bad", "unsigned", path=files("b", model="bad"))
    good, bad = await life.ready("good"), await life.ready("bad")
    assert (good["signedBy"], bad["signedBy"]) == ([key.fingerprint], [])
    for name in ("good", "bad"):
        await life.delete(kinds.MODEL_VERSION, name)
        await life.gone(kinds.MODEL_VERSION, name)
    await life.version("from-good", "careful", image=good["image"])
    await life.version("from-bad", "careful", image=bad["image"])
    pulled = await life.ready("from-good")
    assert (pulled["digest"], pulled["signedBy"]) == (good["digest"], [key.fingerprint])
    assert (await life.failed("from-bad"))[0] == "SignatureMissing"
    assert not life.store.has(bad["digest"])


async def test_an_evicted_image_is_fetched_again_when_an_inference_uses_it(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    digest = (await pushed(life, registry, files()))["digest"]
    async with asyncio.timeout(20):
        while life.store.pins(digest):
            await asyncio.sleep(0.03)
    assert life.store.evict(0) == [digest]
    await life.inference("inf", "v1")
    await life.announced("v1", "Fetched")
    assert life.store.verify(digest, deep=True)
    assert len(life.store.pins(digest)) == 1
    assert life.store.evict(0) == []


async def test_an_image_without_another_copy_is_reported_as_lost(life: ModelLife, files: Files) -> None:
    await life.version("v1", path=files())
    digest = (await life.ready("v1"))["digest"]
    async with asyncio.timeout(20):
        while not life.store.remove(digest):
            await asyncio.sleep(0.03)
    await life.inference("inf", "v1")
    await life.announced("v1", "ImageLost")


async def test_layers_of_another_models_repository_are_mounted(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    for name in ("base", "tuned"):
        await life.with_registry(registry.host, name)
    shared = "w" * 2 * 1024 * 1024
    await life.version("v1", "base", path=files("a", model=shared, own="1"))
    layers = {file["digest"] for file in (await life.ready("v1"))["files"]}
    await life.version("v2", "tuned", path=files("b", model=shared, own="2"))
    assert layers & {file["digest"] for file in (await life.ready("v2"))["files"]}
    begun = [line for line in registry.requests() if line.startswith("POST") and "/tuned/" in line]
    finished = [
        line for line in registry.requests() if line.startswith("PUT") and "/tuned/blobs/uploads/" in line
    ]
    assert len(begun) - len(finished) == 2, "the large layer and the empty config are mounted"


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The host of a registry that accepts connections and never answers.

    Tests name it before `life`, whose clients end first: ones that lose their server connect again.
    """

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with tcp_server(hold) as port:
        yield f"127.0.0.1:{port}"


async def test_a_deleted_version_does_not_wait_for_its_pull(silent: str, life: ModelLife) -> None:
    await life.version("v1", image=f"{silent}/models/digits:v1")
    await life.until("v1", lambda v: "pulling 127.0.0.1" in str(v.get("status")))
    await life.delete(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL_VERSION, "v1")


async def test_a_deleted_version_does_not_wait_for_its_push_and_its_image_is_removed(
    silent: str, life: ModelLife, files: Files
) -> None:
    await life.with_registry(silent)
    await life.version("v1", path=files())
    await life.until("v1", lambda v: "pushing to 127.0.0.1" in str(v.get("status")))
    assert life.store.owners()
    await life.delete(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL_VERSION, "v1")
    assert life.store.owners() == set()
    assert life.store.images() == []


async def test_local_files_become_a_version_while_many_pulls_and_pushes_hang(
    silent: str, life: ModelLife, files: Files
) -> None:
    """A registry that never answers, or slowly, delays no build that needs no registry."""
    await life.with_registry(silent, "pushed")
    for number in range(10):
        await life.version(f"pulled-{number}", image=f"{silent}/models/digits:v{number}")
        await life.version(f"pushed-{number}", "pushed", path=files(f"pushed-{number}", model=str(number)))
    for kind in ("pulling", "pushing"):
        await life.until(f"{kind[:4]}ed-0", lambda v, kind=kind: f"{kind} " in str(v.get("status")))  # type: ignore[misc]
    async with asyncio.timeout(10):
        await life.version("local", path=files("local"))
        await life.ready("local")
        await life.delete(kinds.MODEL_VERSION, "pulled-9")
        await life.gone(kinds.MODEL_VERSION, "pulled-9")


async def test_a_push_does_not_wait_for_pulls_that_hang(
    silent: str, life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    for number in range(10):
        await life.version(f"pulled-{number}", image=f"{silent}/models/digits:v{number}")
    await life.until("pulled-0", lambda v: "pulling " in str(v.get("status")))
    await life.with_registry(registry.host, "own")
    await life.version("v1", "own", path=files())
    async with asyncio.timeout(15):
        await life.ready("v1")


async def test_a_long_push_reports_its_progress(
    life: ModelLife, files: Files, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, released = ModelStore.read_blob, threading.Event()

    def slowly(store: ModelStore, digest: str) -> Iterator[bytes]:
        for chunk in read(store, digest):
            yield chunk
            released.wait(10)

    monkeypatch.setattr(ModelStore, "read_blob", slowly)
    await life.with_registry(registry.host)
    await life.version("v1", path=files())
    try:
        await life.until("v1", lambda v: "digits: sent " in str(v.get("status")))
    finally:
        released.set()
    await life.ready("v1")
