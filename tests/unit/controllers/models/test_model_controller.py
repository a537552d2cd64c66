"""The Model controller against the fake API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from serving import errors
from serving.controllers.models.model import ModelController
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until

VERSION = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "ModelVersion",
    "metadata": {"name": "v1", "namespace": "default"},
    "spec": {"modelName": "digits", "source": {"path": "/models/digits"}},
}


@contextlib.asynccontextmanager
async def reported(kube: FakeKube) -> AsyncIterator[Object]:
    """Yield the Model of one version once it has a status; the controller runs during the block."""
    watches = Watches(kube)
    controller = ModelController(kube, ControllerSettings(backoff_base_seconds=0.001), watches)
    async with running(controller.run(), watches.run()):
        await kube.create(kinds.MODEL_VERSION, VERSION)
        async with asyncio.timeout(5):
            while True:
                with contextlib.suppress(errors.NotFound):
                    model = await kube.get(kinds.MODEL, "default", "digits")
                    if (model.get("status") or {}).get("versions") == 1:
                        break
                await asyncio.sleep(0.005)
        yield model


async def test_model_is_created_when_only_its_version_was_written() -> None:
    async with reported(FakeKube()) as model:
        assert "latestVersion" not in model["status"]


async def test_status_of_a_model_is_replaced_when_others_have_changed_it() -> None:
    kube = FakeKube()
    async with reported(kube) as model:
        before = model["status"]
        fake = {**before["conditions"][0], "type": "Fake"}
        edit = {
            "versions": 9,
            "latestVersion": {"name": "v9", "image": "i"},
            "conditions": [*before["conditions"], fake],
        }
        user = kube.client("user")
        await user.patch(kinds.MODEL, "default", "digits", {"status": edit}, subresource="status")
        await until(lambda: kube.find(kinds.MODEL)[0]["status"] == before)
