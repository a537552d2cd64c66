"""Image volumes are pinned while a Pod uses them, verified before the mount, and pulled where missing."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.kubelet.container import image_volumes
from serving.embedded.kubelet.container.image_volumes import ImageVolumes, MountedImage
from serving.images.building.model_image import build_image
from serving.images.registry import Credentials, Reference, Registry, push
from serving.images.store.model_store import ModelStore
from serving.kube import Kube
from serving.resources import kinds
from serving.settings import RegistrySettings
from tests.fakes.kube import FakeKube
from tests.objects.models.model_images import carry, write_trained
from tests.rig.servers.node_process import (
    NodeProcess,
    agent,
    is_ready,
    log_of,
    main_status,
    phase,
    pod,
    until,
    until_gone,
)
from tests.rig.servers.registry_server import PASSWORD, USER, RegistryServer

NAMESPACE = "default"
READS = "import os; print(open(os.environ['D'] + '/slipway.json').read())"


@pytest.fixture(scope="module")
def node(api_server: DataDir) -> Iterator[NodeProcess]:
    with agent(api_server, NAMESPACE, "executed") as process:
        yield process


@pytest.fixture
def store(node: NodeProcess) -> ModelStore:
    return ModelStore(node.data_dir.models)


def built(store: ModelStore, trained: Path, seed: int) -> str:
    """Make an image; return its digest."""
    write_trained(trained, seed=seed)
    return build_image(trained, store, repository=f"slipway.local/{NAMESPACE}/m", lineage={}).digest


def local(digest: str) -> str:
    return f"slipway.local/{NAMESPACE}/m@{digest}"


def user(name: str, reference: str, script: str = READS, **spec: object) -> dict:
    volume = {"name": "model", "image": {"reference": reference, **spec.pop("image", {})}}
    return pod(
        NAMESPACE,
        name,
        script,
        spec_volumes=[volume],
        env=[{"name": "D", "value": "/mnt/model/models"}],
        volumeMounts=[{"name": "model", "mountPath": "/mnt/model"}],
        **spec,
    )


async def waiting(kube: Kube, name: str, reason: str) -> str:
    stored = await until(
        kube,
        NAMESPACE,
        name,
        lambda p: main_status(p).get("state", {}).get("waiting", {}).get("reason") == reason,
    )
    return main_status(stored)["state"]["waiting"]["message"]


async def test_image_is_fetched_with_the_pods_secret_and_pinned_until_the_pod_is_gone(
    kube: Kube, store: ModelStore, tmp_path: Path
) -> None:
    source = ModelStore(tmp_path / "elsewhere")
    digest = built(source, tmp_path / "trained", 1)
    registry = RegistryServer.with_htpasswd(tmp_path / "registry").start()
    login = {"auths": {registry.host: {"username": USER, "password": PASSWORD}}}
    config = json.dumps(login).encode()
    try:
        reference = Reference.parse(f"{registry.host}/models/m:v1")
        async with Registry(Credentials.from_secret(config, "here")) as client:
            await push(client, source, digest, reference)
        image = str(reference.at(digest))
        await kube.create(kinds.POD, user("refused", image))
        assert "Unauthorized" in await waiting(kube, "refused", "ErrImagePull")
        await kube.delete(kinds.POD, NAMESPACE, "refused")
        await kube.create(
            kinds.SECRET,
            {
                "metadata": {"name": "login", "namespace": NAMESPACE},
                "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": base64.b64encode(config).decode()},
            },
        )
        created = await kube.create(
            kinds.POD,
            user(
                "fetches",
                image,
                spec_imagePullSecrets=[{"name": "login"}],
                script=READS + "\nimport time; print('', flush=True); time.sleep(60)",
            ),
        )
        await until(kube, NAMESPACE, "fetches", is_ready)
    finally:
        registry.stop()
    assert store.pins(digest) == {f"pod/{created['metadata']['uid']}"}
    assert store.origin(digest) == image
    assert store.evict(0) == []
    await kube.delete(kinds.POD, NAMESPACE, "fetches")
    await until_gone(kube, NAMESPACE, "fetches")
    assert store.pins(digest) == set()


async def test_a_slow_registry_keeps_no_pod_waiting_that_names_the_image_at_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ModelStore(tmp_path / "elsewhere")
    digest = built(source, tmp_path / "trained", 7)
    pulls: list[str] = []
    answers = asyncio.Event()

    async def pull(_registry: Registry, store: ModelStore, reference: Reference) -> str:
        pulls.append(reference.host)
        if reference.host == "slow.example":
            await answers.wait()
        await asyncio.to_thread(carry, source, store, digest, origin=str(reference))
        return digest

    monkeypatch.setattr(image_volumes, "pull", pull)
    volumes = ImageVolumes(FakeKube(), ModelStore(tmp_path / "store"), RegistrySettings())

    async def mount(uid: str, host: str) -> MountedImage:
        mounting = {"metadata": {"uid": uid, "namespace": NAMESPACE}, "spec": {}}
        return await volumes.mount(mounting, {"image": {"reference": f"{host}/models/m@{digest}"}})

    slow = [asyncio.create_task(mount(uid, "slow.example")) for uid in ("a", "b")]
    async with asyncio.timeout(20):
        while not pulls:
            await asyncio.sleep(0.001)
        assert (await mount("c", "quick.example")).digest == digest
        answers.set()
        assert [(await task).digest for task in slow] == [digest, digest]
    assert pulls == ["slow.example", "quick.example"]


async def test_pull_is_cancelled_when_the_last_pod_that_waits_for_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def pull(*_: object) -> str:
        begun.set()
        try:
            return str(await asyncio.Event().wait())
        finally:
            cancelled.set()

    monkeypatch.setattr(image_volumes, "pull", pull)
    volumes = ImageVolumes(FakeKube(), ModelStore(tmp_path / "store"), RegistrySettings())
    volume = {"image": {"reference": f"slow.example/models/m@sha256:{'0' * 64}"}}

    async def mount(uid: str) -> MountedImage:
        return await volumes.mount({"metadata": {"uid": uid, "namespace": NAMESPACE}, "spec": {}}, volume)

    first, last = asyncio.create_task(mount("a")), asyncio.create_task(mount("b"))
    async with asyncio.timeout(20):
        await begun.wait()
        while sum(fetch.waiting for fetch in volumes._fetching.values()) < 2:
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.wait([first])
        assert not cancelled.is_set()
        last.cancel()
        await cancelled.wait()


@pytest.mark.parametrize("is_known", [True, False], ids=["deleted", "orphan"])
async def test_image_is_not_pinned_by_a_deleted_pod_when_it_was_removed_for_a_pull(
    tmp_path: Path, *, is_known: bool
) -> None:
    own = ModelStore(tmp_path / "store")
    digest = built(own, tmp_path / "trained", 8)
    own.set_origin(digest, f"registry.example/models/m@{digest}")
    own.pin(digest, "pod/gone")
    weights = own.tree(digest) / "models" / "weights.bin"
    weights.parent.chmod(0o755)
    weights.unlink()
    assert own.repair(digest) is not None
    assert not own.has(digest)
    volumes = ImageVolumes(FakeKube(), own, RegistrySettings())
    await (volumes.release("gone") if is_known else volumes.release_others(set))
    assert own.pins(digest) == set()


async def test_changed_image_is_not_mounted(
    kube: Kube, node: NodeProcess, store: ModelStore, tmp_path: Path
) -> None:
    digest = built(store, tmp_path / "trained", 2)
    await kube.create(kinds.POD, user("sound", local(digest), spec_restartPolicy="Never"))
    stored = await until(kube, NAMESPACE, "sound", phase("Succeeded"))
    assert json.loads(log_of(node.data_dir, stored))["framework"] == "sklearn"
    weights = store.tree(digest) / "models" / "weights.bin"
    weights.parent.chmod(0o755)
    weights.chmod(0o644)
    weights.write_bytes(b"swapped")
    await kube.create(kinds.POD, user("touched", local(digest)))
    assert "weights.bin" in await waiting(kube, "touched", "ErrImagePull")


async def test_sealed_digest_is_set_by_the_node_only(
    kube: Kube, node: NodeProcess, store: ModelStore, tmp_path: Path
) -> None:
    digest = built(store, tmp_path / "trained", 4)
    script = "import os; print(os.environ.get('SLIPWAY_MODEL_SEALED'))"
    for name, claimed, expected in (("sealed", digest, digest), ("unsealed", "sha256:other", None)):
        body = user(name, local(digest), script, spec_restartPolicy="Never")
        body["spec"]["containers"][0]["env"] += [
            {"name": "SLIPWAY_MODEL_DIGEST", "value": claimed},
            {"name": "SLIPWAY_MODEL_SEALED", "value": claimed},
        ]
        await kube.create(kinds.POD, body)
        stored = await until(kube, NAMESPACE, name, phase("Succeeded"))
        assert log_of(node.data_dir, stored) == f"{expected}\n"


async def test_pod_of_a_release_without_lists_gets_the_digest_of_the_list(
    kube: Kube, node: NodeProcess, store: ModelStore, tmp_path: Path
) -> None:
    write_trained(tmp_path / "trained", seed=6)
    image = build_image(tmp_path / "trained", store, repository=f"slipway.local/{NAMESPACE}/m", lineage={})
    script = "import os; print(os.environ.get('SLIPWAY_MODEL_FILES_DIGEST'))"
    for name, of_image, own, expected in (
        ("old", image.digest, {}, image.files_digest),
        ("new", image.digest, {"SLIPWAY_MODEL_FILES_DIGEST": "sha256:own"}, "sha256:own"),
        ("other", "sha256:other", {}, None),
    ):
        body = user(name, local(image.digest), script, spec_restartPolicy="Never")
        variables = {"SLIPWAY_MODEL_DIGEST": of_image, **own}
        body["spec"]["containers"][0]["env"] += [{"name": k, "value": v} for k, v in variables.items()]
        await kube.create(kinds.POD, body)
        stored = await until(kube, NAMESPACE, name, phase("Succeeded"))
        assert log_of(node.data_dir, stored) == f"{expected}\n"


async def test_pod_reports_err_image_pull_when_the_image_does_not_exist(kube: Kube) -> None:
    missing = "sha256:" + "c" * 64
    await kube.create(kinds.POD, user("local", local(missing)))
    await kube.create(kinds.POD, user("never", f"127.0.0.1:1/m@{missing}", image={"pullPolicy": "Never"}))
    assert "not in this machine's model store" in await waiting(kube, "local", "ErrImagePull")
    assert "pullPolicy is Never" in await waiting(kube, "never", "ErrImageNeverPull")


async def test_image_of_another_namespace_is_not_mounted_when_a_pod_knows_its_digest(
    kube: Kube, node: NodeProcess, store: ModelStore, tmp_path: Path
) -> None:
    write_trained(tmp_path / "trained", seed=5)
    digest = build_image(tmp_path / "trained", store, repository="slipway.local/other/m", lineage={}).digest
    with pytest.raises(errors.Invalid, match=f"must begin with slipway.local/{NAMESPACE}/"):
        await kube.create(kinds.POD, user("named", f"slipway.local/other/m@{digest}"))
    await kube.create(kinds.POD, user("disguised", local(digest)))
    assert "not in this machine's model store" in await waiting(kube, "disguised", "ErrImagePull")
    await kube.create(kinds.POD, user("elsewhere", f"127.0.0.1:1/m@{digest}"))
    assert "RegistryUnavailable" in await waiting(kube, "elsewhere", "ErrImagePull")
    assert store.pins(digest) == set()
    build_image(tmp_path / "trained", store, repository=f"slipway.local/{NAMESPACE}/n", lineage={})
    await kube.create(kinds.POD, user("own", local(digest), spec_restartPolicy="Never"))
    stored = await until(kube, NAMESPACE, "own", phase("Succeeded"))
    assert json.loads(log_of(node.data_dir, stored))["framework"] == "sklearn"


async def test_pins_of_deleted_pods_are_removed_when_an_agent_starts(
    kube: Kube, node: NodeProcess, store: ModelStore, tmp_path: Path
) -> None:
    digest = built(store, tmp_path / "trained", 3)
    store.pin(digest, "pod/long-gone")
    store.pin(digest, "version/kept")
    node.stop()
    node.start()
    deadline = time.monotonic() + 10
    while store.pins(digest) != {"version/kept"}:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
