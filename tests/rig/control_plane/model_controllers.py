"""Model and ModelVersion controllers over the real API and a real store, and the actions of their users."""

import asyncio
import base64
import dataclasses
from collections.abc import Callable
from typing import Any

from serving import errors, job_kinds
from serving.controllers.models.model import ModelController
from serving.controllers.models.modelversion import ModelVersionController
from serving.controllers.models.training_jobs import TrainingJobs
from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore
from serving.kube import Kube, Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, ModelPolicySettings, ModelsSettings
from tests.objects.models.signing_keys import KeyPair

SETTINGS = dataclasses.replace(
    DEFAULTS,
    controllers=dataclasses.replace(
        DEFAULTS.controllers,
        workers=2,
        build_backoff_base_seconds=0.1,
        release_seconds=0.1,
        progress_seconds=0.1,
    ),
    registry=dataclasses.replace(DEFAULTS.registry, attempts=1, backoff_base_seconds=0.05),
)


class ModelLife:
    """The user of a namespace."""

    def __init__(self, kube: Kube, data: DataDir, namespace: str) -> None:
        self.kube = kube
        self.data = data
        self.store = ModelStore(data.models)
        self.namespace = namespace

    async def create(self, kind: kinds.Kind, name: str, spec: Object, **more: Any) -> Object:
        meta = {"name": name, "namespace": self.namespace}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **more}
        return await self.kube.create(kind, body | ({"spec": spec} if spec else {}))

    async def with_registry(self, host: str, model: str = "digits") -> None:
        """Create a Model whose versions are pushed to `models/MODEL`."""
        repository = f"{host}/models/{model}"
        await self.create(kinds.MODEL, model, {"registry": {"repository": repository}})

    async def with_signing(self, model: str, host: str, key: KeyPair) -> None:
        """Create a Model whose versions are pushed to `models/MODEL` and signed."""
        data = {"cosign.key": base64.b64encode(key.private.encode()).decode()}
        await self.create(kinds.SECRET, "signing", {}, data=data)
        registry = {"repository": f"{host}/models/{model}"}
        await self.create(kinds.MODEL, model, {"registry": registry, "signing": {"secretName": "signing"}})

    async def version(self, name: str, model: str = "digits", **source: Any) -> Object:
        return await self.create(kinds.MODEL_VERSION, name, {"modelName": model, "source": source})

    async def inference(self, name: str, *versions: str) -> Object:
        predictors = [{"name": f"p{i}", "modelVersion": version} for i, version in enumerate(versions)]
        return await self.create(kinds.INFERENCE, name, {"framework": "sklearn", "predictors": predictors})

    async def get(self, kind: kinds.Kind, name: str) -> Object:
        return await self.kube.get(kind, self.namespace, name)

    async def delete(self, kind: kinds.Kind, name: str) -> None:
        await self.kube.delete(kind, self.namespace, name)

    async def until(
        self, name: str, holds: Callable[[Object], bool], kind: kinds.Kind = kinds.MODEL_VERSION
    ) -> Object:
        obj: Object = {}
        try:
            async with asyncio.timeout(20):
                while True:
                    obj = await self.get(kind, name)
                    if holds(obj):
                        return obj
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(obj) from None

    async def finished(self, name: str) -> Object:
        model_version = await self.until(
            name, lambda v: v.get("status", {}).get("phase") in ("Ready", "Blocked", "Failed")
        )
        status: Object = model_version["status"]
        return status

    async def ready(self, name: str) -> Object:
        status = await self.finished(name)
        assert status["phase"] == "Ready", status["conditions"]
        return status

    async def failed(self, name: str) -> tuple[str, str]:
        return self._ended(await self.finished(name), "Failed")

    async def blocked(self, name: str) -> tuple[str, str]:
        """Return reason and message of a version once a policy blocks it."""
        version = await self.until(name, lambda v: v.get("status", {}).get("phase") in ("Blocked", "Failed"))
        return self._ended(version["status"], "Blocked")

    def _ended(self, status: Object, phase: str) -> tuple[str, str]:
        assert status["phase"] == phase, status["conditions"]
        condition = conditions.find(status["conditions"], "Ready")
        assert condition is not None
        return condition["reason"], condition["message"]

    async def annotate(self, **annotations: str | None) -> None:
        """Set annotations `slipway.dev/NAME` of the namespace, with `_` for `-`; None removes one."""
        written = {f"slipway.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
        await self.kube.patch(kinds.NAMESPACE, None, self.namespace, {"metadata": {"annotations": written}})

    async def gone(self, kind: kinds.Kind, name: str) -> None:
        try:
            async with asyncio.timeout(20):
                while True:
                    await self.get(kind, name)
                    await asyncio.sleep(0.03)
        except errors.NotFound:
            return
        except TimeoutError:
            raise AssertionError(await self.get(kind, name)) from None

    async def announced(self, name: str, reason: str) -> None:
        """Wait for an Event of this object with this reason."""
        async with asyncio.timeout(20):
            while True:
                events = (await self.kube.list(kinds.EVENT_V1, self.namespace)).items
                if any(e["reason"] == reason and e["involvedObject"]["name"] == name for e in events):
                    return
                await asyncio.sleep(0.03)

    async def clear(self) -> None:
        """Delete all objects, as the controllers of the next test see all namespaces."""
        for kind in (kinds.INFERENCE, kinds.MODEL, kinds.MODEL_VERSION):
            for item in (await self.kube.list(kind, self.namespace)).items:
                await self.delete(kind, item["metadata"]["name"])
        for item in (await self.kube.list(kinds.MODEL_VERSION, self.namespace)).items:
            await self.gone(kinds.MODEL_VERSION, item["metadata"]["name"])


async def control(kube: Kube, data: DataDir, policy: ModelPolicySettings = DEFAULTS.models.policy) -> None:
    watches = Watches(kube)
    settings = dataclasses.replace(SETTINGS, models=ModelsSettings(policy, capture="local"))
    model = ModelController(kube, SETTINGS.controllers, watches)
    version = ModelVersionController(
        kube, settings, data, watches, TrainingJobs(watches, job_kinds.shipped())
    )
    async with asyncio.TaskGroup() as group:
        for runner in (model, version, watches):
            group.create_task(runner.run())
