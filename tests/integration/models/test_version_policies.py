"""Policies for the contents of model versions, with the real API, controllers, store and registry."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from serving.controllers.inference import InferenceController
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import ModelPolicySettings
from tests.objects.models.model_files import pickled, safetensors
from tests.objects.models.signing_keys import key_pair
from tests.rig.control_plane.convergence import running
from tests.rig.control_plane.model_controllers import SETTINGS, ModelLife
from tests.rig.servers.registry_server import RegistryServer

pytestmark = pytest.mark.timeout(60)
Files = Callable[..., str]
NO_CODE = ModelPolicySettings(no_code=True)


@pytest.fixture
async def inferences(life: ModelLife) -> AsyncIterator[None]:
    """The Inference controller beside those of models."""
    watches = Watches(life.kube)
    controller = InferenceController(life.kube, SETTINGS.controllers, watches)
    async with running(controller.run(), watches.run()):
        yield
        for inference in (await life.kube.list(kinds.INFERENCE, life.namespace)).items:
            await life.delete(kinds.INFERENCE, inference["metadata"]["name"])
            await life.gone(kinds.INFERENCE, inference["metadata"]["name"])


@pytest.fixture
def data_files(tmp_path: Path) -> str:
    """A directory of files that hold data alone."""
    directory = tmp_path / "harmless"
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(safetensors())
    (directory / "config.json").write_text("{}")
    return str(directory)


def ready(obj: Object) -> Object:
    return dict(conditions.find((obj.get("status") or {}).get("conditions"), "Ready") or {})


async def deployments(life: ModelLife) -> list[Object]:
    return (await life.kube.list(kinds.DEPLOYMENT, life.namespace)).items


async def starts_nothing(life: ModelLife, version: str, words: str) -> None:
    """Check that an Inference of this version has no Deployment, and says why."""
    await life.inference("inf", version)
    inference = await life.until("inf", lambda i: "reason" in ready(i), kinds.INFERENCE)
    assert ready(inference)["reason"] == "ModelVersionBlocked"
    assert f"ModelVersion {version} is blocked" in ready(inference)["message"]
    assert words in ready(inference)["message"]
    assert await deployments(life) == []


async def started(life: ModelLife) -> None:
    """Wait until the Inference has a Deployment."""
    await life.until("inf", lambda i: ready(i).get("reason") != "ModelVersionBlocked", kinds.INFERENCE)
    assert len(await deployments(life)) == 1


@pytest.mark.usefixtures("inferences")
async def test_a_pickle_is_blocked_by_its_namespace_until_the_policy_is_removed(
    life: ModelLife, files: Files
) -> None:
    await life.annotate(model_policy="noCode")
    await life.version("v1", path=files())
    reason, message = await life.blocked("v1")
    assert reason == "ContainsCode"
    assert message.startswith("model.joblib (Pickle) contains code")
    assert f"(rule noCode of Namespace {life.namespace})" in message
    await life.announced("v1", "ContainsCode")
    await starts_nothing(life, "v1", "model.joblib (Pickle)")
    model = await life.get(kinds.MODEL, "digits")
    assert "latestVersion" not in model["status"]
    await life.annotate(model_policy=None)
    allowed = await life.until("v1", lambda v: v["status"]["phase"] == "Ready")
    assert allowed["status"]["contents"]["files"] == [{"path": "model.joblib", "format": "Pickle"}]
    await started(life)


@pytest.mark.parametrize("policy", [NO_CODE], ids=["noCode"])
@pytest.mark.usefixtures("inferences")
async def test_a_pickle_under_another_name_is_blocked_by_the_installation(
    life: ModelLife, data_files: str, policy: ModelPolicySettings
) -> None:
    await life.version("good", path=data_files)
    assert (await life.ready("good"))["contents"] == {"containsCode": False}
    (Path(data_files) / "model.safetensors").write_bytes(pickled())
    await life.version("bad", path=data_files)
    reason, message = await life.blocked("bad")
    assert (reason, "model.safetensors (Pickle)" in message) == ("ContainsCode", True)
    assert "(rule noCode of the settings models.policy)" in message
    await starts_nothing(life, "bad", "model.safetensors (Pickle)")


@pytest.mark.usefixtures("inferences")
async def test_a_ready_version_is_blocked_when_its_namespace_gets_a_policy(
    life: ModelLife, files: Files
) -> None:
    await life.version("v1", path=files())
    await life.ready("v1")
    await life.annotate(model_policy="noCode")
    assert (await life.blocked("v1"))[0] == "ContainsCode"
    await starts_nothing(life, "v1", "model.joblib (Pickle)")


@pytest.mark.usefixtures("inferences")
async def test_an_unknown_rule_blocks_every_version_and_is_named(life: ModelLife, data_files: str) -> None:
    await life.annotate(model_policy="noCode,sined")
    await life.version("v1", path=data_files)
    reason, message = await life.blocked("v1")
    assert (reason, "unknown rule 'sined'" in message) == ("PolicyInvalid", True)
    await starts_nothing(life, "v1", "unknown rule 'sined'")
    await life.annotate(model_policy="noCode")
    await life.until("v1", lambda v: v["status"]["phase"] == "Ready")
    await started(life)


@pytest.mark.usefixtures("inferences")
async def test_an_image_without_a_signature_by_the_policys_key_is_blocked(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    key, other = key_pair(), key_pair()
    await life.annotate(model_policy="signed", model_policy_keys=other.public)
    await life.with_signing("signed", registry.host, key)
    await life.version("unsigned", path=files("a", model="a"))
    await life.version("signed", "signed", path=files("b", model="b"))
    assert (await life.blocked("unsigned"))[0] == "NotSigned"
    reason, message = await life.blocked("signed")
    assert (reason, f"(rule signed of Namespace {life.namespace})" in message) == ("NotSigned", True)
    await starts_nothing(life, "signed", "no signature by one of 1 trusted key")
    await life.annotate(model_policy_keys=f"{other.public}{key.public}")
    version = await life.until("signed", lambda v: v["status"]["phase"] == "Ready")
    assert version["status"]["signedBy"] == [key.fingerprint]
    await started(life)
    assert (await life.get(kinds.MODEL_VERSION, "unsigned"))["status"]["phase"] == "Blocked"


async def test_a_pulled_image_is_examined_for_signatures_by_keys_that_a_policy_adds_later(
    life: ModelLife, files: Files, registry: RegistryServer
) -> None:
    key = key_pair()
    await life.with_signing("signed", registry.host, key)
    await life.version("v1", "signed", path=files())
    image = (await life.ready("v1"))["image"]
    await life.delete(kinds.MODEL_VERSION, "v1")
    await life.gone(kinds.MODEL_VERSION, "v1")
    await life.version("pulled", "other", image=image)
    assert (await life.ready("pulled"))["signedBy"] == []
    registry.stop()  # the signature was pulled with the image
    await life.annotate(model_policy="signed", model_policy_keys=key.public)
    version = await life.until("pulled", lambda v: v["status"]["signedBy"] == [key.fingerprint])
    assert version["status"]["phase"] == "Ready"


@pytest.mark.parametrize(
    "policy",
    [ModelPolicySettings(signed=True, keys="/nowhere/absent.pub")],
    ids=["absent"],
)
async def test_a_file_of_keys_that_is_missing_blocks_every_version_and_is_named(
    life: ModelLife, data_files: str, policy: ModelPolicySettings
) -> None:
    await life.version("v1", path=data_files)
    reason, message = await life.blocked("v1")
    assert (reason, "/nowhere/absent.pub" in message) == ("PolicyInvalid", True)


@pytest.mark.parametrize("evicted", [False, True])
async def test_a_version_of_an_older_release_is_examined(
    life: ModelLife, files: Files, registry: RegistryServer, *, evicted: bool
) -> None:
    """Also if another leader, or a full store, has its image in the registry only."""
    await life.with_registry(registry.host)
    await life.version("v1", path=files())
    status = await life.ready("v1")
    if evicted:
        async with asyncio.timeout(20):
            while not life.store.remove(status["digest"]):
                await asyncio.sleep(0.03)
    older = {name: value for name, value in status.items() if name not in ("contents", "signedBy")}
    stored = await life.get(kinds.MODEL_VERSION, "v1")
    await life.kube.update(kinds.MODEL_VERSION, {**stored, "status": older}, subresource="status")
    version = await life.until("v1", lambda v: "contents" in v["status"])
    assert version["status"]["contents"] == status["contents"]
    assert version["status"]["phase"] == "Ready"
    async with asyncio.timeout(20):
        while life.store.owners():  # nothing uses it
            await asyncio.sleep(0.03)
