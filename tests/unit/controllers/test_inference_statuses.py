"""What the Inference controller writes of a status and announces, and when: against an API in memory."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from serving.controllers.inference import InferenceController
from serving.kube import Watches
from serving.objects import Object
from serving.planning.inference.plan import BackendProbe
from serving.resources import conditions, kinds
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, FakeProber, Surroundings, inference, predictor, ready_version
from tests.rig.convergence import running, until

QUICK = dataclasses.replace(ControllerSettings(), gather_seconds=0.005, status_settle_seconds=0.1)
PATIENT = dataclasses.replace(QUICK, status_settle_seconds=3600.0)


class World:
    """An API with its surroundings and the controller."""

    def __init__(self) -> None:
        self.api = FakeKube()
        self.prober = FakeProber()
        self.around = Surroundings(self.api)
        for name in ("digits-v1", "digits-v2"):
            self.api.add(kinds.MODEL_VERSION, ready_version(name))

    async def control(self, settings: ControllerSettings) -> None:
        kube = self.api.client("inference")
        watches = Watches(kube)
        controller = InferenceController(kube, settings, self.prober, watches)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            group.create_task(watches.run())

    @property
    def inference(self) -> Object:
        return self.api.find(kinds.INFERENCE)[0]

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason."""
        found = conditions.find((self.inference.get("status") or {}).get("conditions"), "Ready") or {}
        return found.get("status", ""), found.get("reason", "")

    @property
    def is_current(self) -> bool:
        obj = self.inference
        return bool(obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"])

    def events(self) -> dict[str, str]:
        """Reason to message."""
        return {e["reason"]: e["message"] for e in self.api.find(kinds.EVENT_V1)}

    def statuses(self) -> list[str]:
        """What `Ready` gave as its reason in each status that was written."""
        seen = [
            change.after.get("status")
            for change in self.api.log
            if change.kind is kinds.INFERENCE and change.after
        ]
        changed = [new for old, new in zip([None, *seen], seen, strict=False) if new and new != old]
        return [str((conditions.find(s["conditions"], "Ready") or {})["reason"]) for s in changed]


@asynccontextmanager
async def world(settings: ControllerSettings, *predictors: Object) -> AsyncIterator[World]:
    found = World()
    found.api.add(kinds.INFERENCE, inference(*predictors))
    found.around.start()
    try:
        async with running(found.control(settings)):
            yield found
    finally:
        await found.around.stop()


TWO = (predictor("stable", "digits-v1", 90), predictor("new", "digits-v2", 10))


async def test_quick_replicas_make_one_status_and_one_event() -> None:
    async with world(PATIENT, *TWO) as found:
        await until(lambda: found.ready[0] == "True")
        # Both arms may be proven in one look, or the second while the first is being routed; Ready alone is said.
        assert found.statuses() == ["Ready"]
        assert list(found.events()) == ["Ready"]
        for arm in found.inference["status"]["predictors"]:
            assert f"{arm['name']}: revision {arm['revision']}" in found.events()["Ready"]


async def test_a_change_of_weights_is_a_route_and_a_status_and_no_event() -> None:
    async with world(PATIENT, *TWO) as found:
        await until(lambda: found.ready[0] == "True")
        before = len(found.api.writes)
        changed = [predictor("stable", "digits-v1", 50), predictor("new", "digits-v2", 50)]
        found.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": changed}})
        await until(lambda: found.is_current)
        assert found.api.writes[before:] == ["apply routes/digits", "apply inferences/digits/status"]
        assert found.ready == ("True", "Ready")


async def test_a_problem_does_not_wait() -> None:
    async with world(PATIENT, predictor("stable", "digits-v3")) as found:
        await until(lambda: found.ready == ("False", "ModelVersionNotFound"))


async def test_a_probe_that_fails_does_not_wait_and_is_not_taken_back_while_it_is_tried_again() -> None:
    settings = dataclasses.replace(PATIENT, probe_retry_seconds=0.01)
    async with world(settings, predictor("stable", "digits-v1")) as found:
        found.prober.sick.add("digits-stable")
        await until(lambda: len(found.prober.asked) > 5)
        assert found.statuses() == ["ProbeFailed"]
        found.prober.sick.clear()
        await until(lambda: found.ready[0] == "True")


async def test_what_is_on_its_way_for_long_is_said() -> None:
    async with world(QUICK, predictor("stable", "digits-v1")) as found:
        found.around.broken.add("digits-v1")
        await until(lambda: found.ready == ("False", "ReplicasNotReady"))
        found.around.broken.clear()
        found.around.is_accepting = False
        found.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "again"}}})
        await until(lambda: bool(found.prober.asked))
        await until(lambda: found.ready == ("False", "RouteNotAccepted"))


async def test_a_status_that_never_stops_changing_is_said_again_and_again() -> None:
    """A wait that began anew with every change would never end."""
    async with world(QUICK, predictor("stable", "digits-v1")) as found:
        found.around.broken.add("digits-v1")
        await until(lambda: bool(found.api.find(kinds.DEPLOYMENT)))
        name = found.api.find(kinds.DEPLOYMENT)[0]["metadata"]["name"]
        loop = asyncio.get_running_loop()
        begun, count = loop.time(), 0
        while len(found.statuses()) < 4:
            assert loop.time() < begun + 20, found.statuses()
            count += 1
            found.api.change(kinds.DEPLOYMENT, NS, name, {"spec": {"replicas": 2 + count % 50}})
            await asyncio.sleep(QUICK.status_settle_seconds / 20)
        assert set(found.statuses()) == {"ReplicasNotReady"}
        assert len(found.statuses()) <= (loop.time() - begun) / QUICK.status_settle_seconds + 1


class SlowProber(FakeProber):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def verdict(self, namespace: str, probe: BackendProbe) -> str:
        self.asked.append(probe.backend)
        await self.go.wait()
        return ""


async def test_a_probe_that_takes_long_is_said_meanwhile() -> None:
    found = World()
    slow = found.prober = SlowProber()
    found.api.add(kinds.INFERENCE, inference(*TWO))
    found.around.start()
    async with running(found.control(QUICK)):
        await until(lambda: found.ready == ("False", "Probing"))
        assert sorted(name.split("-")[1] for name in slow.asked) == ["new", "stable"], (
            "both are asked at once"
        )
        slow.go.set()
        await until(lambda: found.ready == ("True", "Ready"))
    await found.around.stop()


async def test_the_proof_of_an_arm_without_weight_is_kept_by_the_next_controller() -> None:
    idle = (predictor("stable", "digits-v1", 100), predictor("spare", "digits-v2", 0))
    found = World()
    found.api.add(kinds.INFERENCE, inference(*idle))
    found.around.start()
    async with running(found.control(PATIENT)):
        await until(lambda: found.ready[0] == "True")
    found.prober.asked.clear()
    changed = [{**arm, "trafficWeight": 50} for arm in idle]
    found.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": changed}})
    async with running(found.control(PATIENT)):
        await until(lambda: found.is_current and found.ready[0] == "True")
    await found.around.stop()
    assert found.prober.asked == []
