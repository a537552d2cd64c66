"""The Model controller against the fake API."""

import asyncio
import contextlib

from serving import errors
from serving.controllers.models.model import ModelController
from serving.kube import Watches
from serving.resources import kinds
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube

VERSION = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "ModelVersion",
    "metadata": {"name": "v1", "namespace": "default"},
    "spec": {"modelName": "digits", "source": {"path": "/models/digits"}},
}


async def test_model_is_created_when_only_its_version_was_written() -> None:
    kube = FakeKube()
    watches = Watches(kube)
    controller = ModelController(kube, ControllerSettings(backoff_base_seconds=0.001), watches)
    tasks = [asyncio.create_task(component.run()) for component in (controller, watches)]
    try:
        await kube.create(kinds.MODEL_VERSION, VERSION)
        async with asyncio.timeout(5):
            while True:
                with contextlib.suppress(errors.NotFound):
                    model = await kube.get(kinds.MODEL, "default", "digits")
                    if (model.get("status") or {}).get("versions") == 1:
                        break
                await asyncio.sleep(0.005)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert "latestVersion" not in model["status"]
