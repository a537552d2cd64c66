"""Trials and experiments on the whole product while what they are made of is killed: each end is a result, and nothing is left."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import conditions, kinds, names
from serving.resources.experiment import Prices
from serving.resources.inference import Predictor
from serving.resources.trial import FINISHED
from serving.system import processes
from tests.rig import stack as stacks
from tests.rig.stack import NAMESPACE, Stack, light, until, version, write_model
from tuner.specs import rendering
from tuner.specs.rendering import Source

pytestmark = pytest.mark.slow

LOAD: Object = {
    "requestTemplate": {"path": "/v2/models/light/infer", "body": "{}"},
    "levels": ["1", "2"], "windowSeconds": 1, "warmupSeconds": 0,
}  # fmt: skip
LONG: Object = {**LOAD, "levels": ["1"], "windowSeconds": 60}
SEEN: set[int] = set()
"""Processes that were the controllers; a generator's command line names the one that started it."""


@pytest.fixture
async def kube(stack: Stack) -> AsyncIterator[Kube]:
    """A client, once the ModelVersion `v-1` is ready."""
    async with await connect(stack.data_dir.kubeconfig, component="test") as client:
        if not (await client.list(kinds.MODEL_VERSION, NAMESPACE)).items:
            await client.create(kinds.MODEL_VERSION, version("v-1", write_model(stack.root / "v1", 1)))
        await until(client, kinds.MODEL_VERSION, "v-1", stacks.settled)
        yield client


def template() -> Object:
    (arm,) = light([{"name": "trial", "modelVersion": "v-1"}])
    found: Object = arm["template"]
    return found


async def begin_trial(kube: Kube, name: str, load: Object = LOAD) -> None:
    """Create a Trial as an experiment's controller does."""
    model = await kube.get(kinds.MODEL_VERSION, NAMESPACE, "v-1")
    arm = Predictor.model_validate(
        {
            "name": "trial",
            "modelVersion": "v-1",
            "template": template(),
            "resources": {"cpu": "1", "memory": "256Mi"},
        }
    )
    shown = rendering.pod(Source("light", "custom", arm), model, (), Prices())
    spec = {
        "experiment": "none", "number": 1, "template": shown.template, "modelName": "light", "load": load,
    }  # fmt: skip
    await kube.create(kinds.TRIAL, _object(kinds.TRIAL, name, spec))


def experiment(name: str, **spec: Any) -> Object:
    space = [
        {"category": "resource", "parameters": [{"name": "cpu", "feasibleSpace": {"list": ["500m", "1"]}}]}
    ]
    whole = {
        "target": {"modelVersion": "v-1", "framework": "custom", "template": template()},
        "tunableParameters": space, "prices": {"cpu": "1"}, "load": {**LOAD, "levels": ["1"]}, "maxNumTrials": 1, **spec,
    }  # fmt: skip
    return _object(kinds.PROFILING_EXPERIMENT, name, whole)


def _object(kind: kinds.Kind, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def is_over(obj: Object) -> bool:
    return (obj.get("status") or {}).get("phase") in FINISHED


def is_measuring(obj: Object) -> bool:
    return (obj.get("status") or {}).get("phase") == "Measuring"


def ready(obj: Object) -> tuple[str, str, str]:
    found = conditions.find(obj["status"]["conditions"], "Ready") or {}
    return found["status"], found["reason"], found["message"]


def controllers(stack: Stack) -> processes.ProcessIdentity:
    found = stack.component("controllers")
    assert found is not None
    SEEN.add(found.pid)
    return found


def locusts(stack: Stack) -> list[int]:
    """Return the processes of locust that this stack's controllers have started, those that were killed included."""
    controllers(stack)
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if b"tuner.load.driver" in words and int(words[words.index(b"tuner.load.driver") + 2]) in SEEN:
                found.append(int(entry.name))
    return found


async def until_nothing_is_left(stack: Stack, kube: Kube) -> None:
    """No Deployment and no Pod of a trial, and no generator of ours."""
    deadline = time.monotonic() + 20
    while True:
        left = [
            obj["metadata"]["name"]
            for kind in (kinds.DEPLOYMENT, kinds.POD)
            for obj in (await kube.list(kind, NAMESPACE, labels=names.TRIAL_LABEL)).items
        ]
        if not left and not locusts(stack):
            return
        assert time.monotonic() < deadline, (left, locusts(stack))
        await asyncio.sleep(0.1)


async def test_a_replica_that_is_killed_in_a_window_is_a_result(stack: Stack, kube: Kube) -> None:
    await begin_trial(kube, "killed", LONG)
    await until(kube, kinds.TRIAL, "killed", is_measuring)
    (pod,) = (await kube.list(kinds.POD, NAMESPACE, labels=f"{names.TRIAL_LABEL}=killed")).items
    os.kill(stack.processes(pod)[1].pid, signal.SIGKILL)
    over = await until(kube, kinds.TRIAL, "killed", is_over, 15)
    assert (over["status"]["phase"], over["status"]["reason"]) == ("Failed", "Crashed")
    assert "exit code 137" in over["status"]["message"]
    await until_nothing_is_left(stack, kube)


async def test_a_generator_that_is_killed_is_started_again_and_the_trial_measured(
    stack: Stack, kube: Kube
) -> None:
    await begin_trial(kube, "bereft")
    await until(kube, kinds.TRIAL, "bereft", is_measuring)
    for pid in locusts(stack):
        os.kill(pid, signal.SIGKILL)
    over = await until(kube, kinds.TRIAL, "bereft", is_over)
    assert (over["status"]["phase"], over["status"]["reason"]) == ("Succeeded", "Measured")
    assert any(note.startswith("LoadRestarted") for note in over["status"]["notes"])
    assert [window["level"] for window in over["status"]["windows"]] == [1, 2]
    await until_nothing_is_left(stack, kube)


async def test_a_trial_is_measured_from_the_beginning_when_the_controllers_were_killed(
    stack: Stack, kube: Kube
) -> None:
    await begin_trial(kube, "orphaned")
    begun = await until(kube, kinds.TRIAL, "orphaned", is_measuring)
    first = await kube.get(kinds.DEPLOYMENT, NAMESPACE, "orphaned")
    before = controllers(stack)
    os.kill(before.pid, signal.SIGKILL)
    started = begun["status"]["startTime"]
    await until(
        kube, kinds.TRIAL, "orphaned", lambda obj: is_measuring(obj) and obj["status"]["startTime"] != started
    )
    second = await kube.get(kinds.DEPLOYMENT, NAMESPACE, "orphaned")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    over = await until(kube, kinds.TRIAL, "orphaned", is_over)
    assert (over["status"]["phase"], over["status"]["reason"]) == ("Succeeded", "Measured")
    assert controllers(stack) != before
    assert [window["level"] for window in over["status"]["windows"]] == [1, 2]
    await until_nothing_is_left(stack, kube)


async def test_two_experiments_at_once_share_the_machine_and_an_impossible_one_says_why(
    stack: Stack, kube: Kube
) -> None:
    bound = [{"metric": "latency", "percentile": 50, "atMost": "1us"}]
    await kube.create(kinds.PROFILING_EXPERIMENT, experiment("possible"))
    await kube.create(kinds.PROFILING_EXPERIMENT, experiment("impossible", constraints=bound))
    found = await until(kube, kinds.PROFILING_EXPERIMENT, "possible", is_over)
    assert ready(found)[:2] == ("True", "Recommended")
    profiles = (await kube.list(kinds.CAPACITY_PROFILE, NAMESPACE)).items
    assert [profile["spec"]["experiment"] for profile in profiles] == ["possible"]
    assert profiles[0]["spec"]["capacity"] > 0
    failed = await until(kube, kinds.PROFILING_EXPERIMENT, "impossible", is_over)
    status, reason, message = ready(failed)
    assert (failed["status"]["phase"], status, reason) == ("Failed", "False", "ConstraintNotMet")
    assert "p50 latency <= 1\u00a0µs" in message
    assert "nearest was cpu=" in message
    trials = [await kube.get(kinds.TRIAL, NAMESPACE, name) for name in ("possible-1", "impossible-1")]
    spans = sorted((trial["status"]["startTime"], trial["status"]["completionTime"]) for trial in trials)
    assert os.cpu_count() != 2 or spans[0][1] <= spans[1][0], "two trials had one core"
    await until_nothing_is_left(stack, kube)
