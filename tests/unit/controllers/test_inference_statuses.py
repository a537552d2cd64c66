"""The statuses and Events that the Inference controller writes, and when, against an API in memory."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from serving import clock, errors
from serving.controllers import inference as controller_module
from serving.controllers.inference import OPTIONAL_CHILDREN, InferenceController
from serving.kube import Watches, node_versions
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, ControllerSettings, RuntimeImageSettings
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, Surroundings, inference, predictor, ready_version
from tests.rig.control_plane.convergence import running, until

QUICK = dataclasses.replace(ControllerSettings(), gather_seconds=0.005, status_settle_seconds=0.1)
PATIENT = dataclasses.replace(QUICK, status_settle_seconds=3600.0)


class ControllerRig:
    """An API with its surroundings and the controller."""

    def __init__(self, framework: str = "sklearn") -> None:
        self.api = FakeKube()
        self.around = Surroundings(self.api)
        for name in ("digits-v1", "digits-v2"):
            self.api.add(kinds.MODEL_VERSION, ready_version(name, framework))

    async def control(
        self,
        settings: ControllerSettings,
        images: RuntimeImageSettings = DEFAULTS.runtime_images,
        volume: str = "image",
    ) -> None:
        kube = self.api.client("inference")
        watches = Watches(kube)
        controller = InferenceController(
            kube, settings, watches, images=images, served=OPTIONAL_CHILDREN, volume=volume
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            group.create_task(watches.run())

    @property
    def inference(self) -> Object:
        return self.api.find(kinds.INFERENCE)[0]

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason."""
        condition = conditions.find((self.inference.get("status") or {}).get("conditions"), "Ready") or {}
        return condition.get("status", ""), condition.get("reason", "")

    @property
    def is_current(self) -> bool:
        obj = self.inference
        return bool(obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"])

    def events(self) -> dict[str, str]:
        """Reason to message."""
        return {e["reason"]: e["message"] for e in self.api.find(kinds.EVENT_V1)}

    def statuses(self) -> list[str]:
        """Return the reason of `Ready` in each written status."""
        written = [
            change.after.get("status")
            for change in self.api.log
            if change.kind is kinds.INFERENCE and change.after
        ]
        changed = [new for old, new in zip([None, *written], written, strict=False) if new and new != old]
        return [str((conditions.find(s["conditions"], "Ready") or {})["reason"]) for s in changed]


@asynccontextmanager
async def controlled(
    settings: ControllerSettings,
    *predictors: Object,
    images: RuntimeImageSettings = DEFAULTS.runtime_images,
    nodes: Sequence[Object] | None = None,
    framework: str = "sklearn",
    volume: str | None = None,
) -> AsyncIterator[ControllerRig]:
    """Run the controller; with `nodes`, they decide how Pods get their models."""
    rig = ControllerRig(framework)
    rig.api.unchecked.add(kinds.NODE)
    if nodes:
        rig.api.unchecked.add(kinds.DEPLOYMENT)
    for node in nodes or ():
        rig.api.add(kinds.NODE, node)
    rig.api.documents["/version"] = {"gitVersion": "v1.36.0"}
    rig.api.add(kinds.INFERENCE, inference(*predictors, framework=framework))
    rig.around.start()
    try:
        volume = volume or ("image" if nodes is None else "auto")
        async with running(rig.control(settings, images, volume)):
            yield rig
    finally:
        await rig.around.stop()


TWO = (predictor("stable", "digits-v1", 90), predictor("new", "digits-v2", 10))


async def test_quick_rollout_writes_one_status_and_one_event() -> None:
    async with controlled(PATIENT, *TWO) as rig:
        await until(lambda: "Ready" in rig.events(), "the Event, which follows the status")
        # Both arms may be proven at once or one after the other; only Ready is written.
        assert rig.statuses() == ["Ready"]
        assert list(rig.events()) == ["Ready"]
        for arm in rig.inference["status"]["predictors"]:
            assert f"{arm['name']}: revision {arm['revision']}" in rig.events()["Ready"]


async def test_quick_rollout_writes_one_status_when_each_own_write_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another reconcile follows each own write, so that its state need not be written."""
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    apply = FakeKube.apply

    async def slow_apply(self: FakeKube, *args: Any, **options: Any) -> Object:
        now[0] += 2 * PATIENT.status_settle_seconds
        return await apply(self, *args, **options)

    monkeypatch.setattr(FakeKube, "apply", slow_apply)
    async with controlled(PATIENT, *TWO) as rig:
        await until(lambda: "Ready" in rig.events(), "the Event, which follows the status")
        assert rig.ready[0] == "True"
        assert rig.statuses() == ["Ready"]
        assert list(rig.events()) == ["Ready"]


async def test_predictor_runs_the_image_of_the_settings() -> None:
    images = RuntimeImageSettings(prefix="registry.corp/slipway", tag="1.2.0")
    async with controlled(QUICK, predictor("stable", "digits-v1"), images=images) as rig:
        await until(lambda: rig.ready[0] == "True")
        (deployment,) = rig.api.find(kinds.DEPLOYMENT)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "registry.corp/slipway/sklearn:1.2.0"


async def test_budget_is_written_once_and_removed_when_one_replica_suffices() -> None:
    stable = predictor("stable", "digits-v1", autoScale={"minReplicas": 2, "maxReplicas": 2})
    async with controlled(QUICK, stable) as rig:
        await until(lambda: rig.ready[0] == "True")
        (budget,) = rig.api.find(kinds.POD_DISRUPTION_BUDGET)
        revision = rig.inference["status"]["predictors"][0]["revision"]
        assert budget["spec"]["selector"]["matchLabels"] == {"slipway.dev/revision": revision}
        assert rig.api.writes.count("apply poddisruptionbudgets/digits-stable") == 1
        one = predictor("stable", "digits-v1", autoScale={"minReplicas": 1, "maxReplicas": 2})
        rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": [one]}})
        await until(lambda: not rig.api.find(kinds.POD_DISRUPTION_BUDGET))


def node(runtime: str) -> Object:
    info = {"operatingSystem": "linux", "kubeletVersion": "v1.36.0", "containerRuntimeVersion": runtime}
    return {"metadata": {"name": "node-1"}, "status": {"nodeInfo": info}}


@pytest.mark.parametrize(
    ("runtime", "volume", "message"),
    [
        (
            "containerd://1.6.33",
            "emptyDir",
            (
                "predictor stable: an init container copies the model"
                " (node node-1: containerd 1.6.33: mounts images since 2.1)"
            ),
        ),
        ("containerd://2.1.0", "image", ""),
    ],
)
async def test_predictor_gets_its_model_as_the_nodes_allow(runtime: str, volume: str, message: str) -> None:
    async with controlled(QUICK, predictor("stable", "digits-v1"), nodes=[node(runtime)]) as rig:
        await until(lambda: rig.ready[0] == "True")
        (deployment,) = rig.api.find(kinds.DEPLOYMENT)
        assert volume in deployment["spec"]["template"]["spec"]["volumes"][0]
        condition = conditions.find(rig.inference["status"]["conditions"], "ModelReady") or {}
        assert condition["message"] == message


def gpu_node(name: str, **allocatable: str) -> Object:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", **allocatable}}}


@pytest.mark.parametrize("volume", ["auto", "image"])
async def test_gpu_share_is_enforced_as_the_nodes_allow_and_the_status_has_the_reason(volume: str) -> None:
    arm = predictor("stable", "digits-v1", resources={"gpu": {"memory": "4Gi", "mechanism": "auto"}})
    nodes = [
        node("containerd://2.1.0"),
        gpu_node("gpus", **{"nvidia.com/gpu": "4", "nvidia.com/gpumem": "9"}),
    ]
    async with controlled(QUICK, arm, nodes=nodes, framework="pytorch", volume=volume) as rig:
        await until(lambda: rig.ready[0] == "True")
        (deployment,) = rig.api.find(kinds.DEPLOYMENT)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}
        assert rig.inference["status"]["predictors"][0]["gpu"] == {
            "mechanism": "hami",
            "message": "nodes have nvidia.com/gpu and nvidia.com/gpumem",
        }


async def test_mechanism_is_chosen_again_after_a_time_when_no_node_shared_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (controller_module, node_versions):
        monkeypatch.setattr(module, "REFRESH_SECONDS", 0.05)
    arm = predictor("stable", "digits-v1", resources={"gpu": {"memory": "4Gi"}})
    async with controlled(QUICK, arm, nodes=[node("containerd://2.1.0")], framework="pytorch") as rig:
        rig.around.broken.add("digits-v1")

        def mechanism() -> str:
            (arm,) = (rig.inference.get("status") or {}).get("predictors") or [{}]
            return str((arm.get("gpu") or {}).get("mechanism"))

        await until(lambda: mechanism() == "mps")
        rig.api.add(kinds.NODE, gpu_node("gpus", **{"nvidia.com/gpu": "4", "nvidia.com/gpumem": "9"}))
        await until(lambda: mechanism() == "hami")


async def test_change_of_weights_writes_route_and_status_and_no_event() -> None:
    async with controlled(PATIENT, *TWO) as rig:
        await until(lambda: rig.ready[0] == "True")
        writes_before = len(rig.api.writes)
        changed = [predictor("stable", "digits-v1", 50), predictor("new", "digits-v2", 50)]
        rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": changed}})
        await until(lambda: rig.is_current)
        assert rig.api.writes[writes_before:] == ["apply routes/digits", "apply inferences/digits/status"]
        assert rig.ready == ("True", "Ready")


async def test_status_with_a_problem_is_written_at_once() -> None:
    async with controlled(PATIENT, predictor("stable", "digits-v3")) as rig:
        await until(lambda: rig.ready == ("False", "ModelVersionNotFound"))


async def test_failed_probe_is_reported_at_once_and_until_it_succeeds() -> None:
    async with controlled(PATIENT, predictor("stable", "digits-v1")) as rig:
        rig.around.sick.add("digits-stable")
        await until(lambda: rig.ready == ("False", "ProbeFailed"))
        rig.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "again"}}})
        assert rig.statuses() == ["ProbeFailed"]
        rig.around.sick.clear()
        rig.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "once more"}}})
        await until(lambda: rig.ready[0] == "True")


async def test_progress_is_reported_when_it_takes_long() -> None:
    async with controlled(QUICK, predictor("stable", "digits-v1")) as rig:
        rig.around.broken.add("digits-v1")
        await until(lambda: rig.ready == ("False", "ReplicasNotReady"))
        rig.around.broken.clear()
        rig.around.is_accepting = False
        rig.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "again"}}})
        await until(lambda: rig.ready == ("False", "RouteNotAccepted"))


async def test_status_that_keeps_changing_is_written_regularly() -> None:
    """A delay that restarted with every change would never end."""
    async with controlled(QUICK, predictor("stable", "digits-v1")) as rig:
        rig.around.broken.add("digits-v1")
        await until(lambda: bool(rig.api.find(kinds.DEPLOYMENT)))
        name = rig.api.find(kinds.DEPLOYMENT)[0]["metadata"]["name"]
        loop = asyncio.get_running_loop()
        started, count = loop.time(), 0
        while len(rig.statuses()) < 4:
            assert loop.time() < started + 20, rig.statuses()
            count += 1
            rig.api.change(kinds.DEPLOYMENT, NS, name, {"spec": {"replicas": 2 + count % 50}})
            await asyncio.sleep(QUICK.status_settle_seconds / 20)
        assert set(rig.statuses()) == {"ReplicasNotReady"}
        assert len(rig.statuses()) <= (loop.time() - started) / QUICK.status_settle_seconds + 1


async def test_slow_probe_is_reported_while_it_runs() -> None:
    rig = ControllerRig()
    rig.around.is_probing = False
    rig.api.add(kinds.INFERENCE, inference(*TWO))
    rig.around.start()
    async with running(rig.control(QUICK)):
        await until(lambda: rig.ready == ("False", "Probing"))
        rig.around.is_probing = True
        rig.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "again"}}})
        await until(lambda: rig.ready == ("True", "Ready"))
    await rig.around.stop()


async def test_the_proof_of_an_arm_without_weight_is_kept_by_the_next_controller() -> None:
    idle = (predictor("stable", "digits-v1", 100), predictor("spare", "digits-v2", 0))
    rig = ControllerRig()
    rig.api.add(kinds.INFERENCE, inference(*idle))
    rig.around.start()
    async with running(rig.control(PATIENT)):
        await until(lambda: rig.ready[0] == "True")
    rig.around.is_probing = False
    changed = [{**arm, "trafficWeight": 50} for arm in idle]
    rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": changed}})
    async with running(rig.control(PATIENT)):
        await until(lambda: rig.is_current and rig.ready[0] == "True")
    await rig.around.stop()


async def test_status_is_not_written_to_another_inference_of_the_name() -> None:
    rig = ControllerRig()
    stored = rig.api.add(kinds.INFERENCE, inference(*TWO))
    meta = {
        **stored["metadata"],
        "uid": "earlier",
        "managedFields": [{"manager": "x", "subresource": "status"}],
    }
    kube, earlier = rig.api.client("inference"), {**stored, "metadata": meta}
    with pytest.raises(errors.ApiError):
        await kube.replace_status(kinds.INFERENCE, earlier, {"observedGeneration": 7})
    assert "status" not in rig.inference
