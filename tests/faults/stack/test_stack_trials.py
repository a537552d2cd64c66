"""Trials and experiments on the whole product end with a result when their processes are killed."""

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
from serving.resources import kinds, names
from serving.resources.inference import Predictor
from serving.resources.kubernetes import conditions
from serving.resources.tuning.experiment import Prices
from serving.resources.tuning.trial import FINISHED
from serving.system import processes
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, LiveStack, light, until, version
from tuner.specs import rendering
from tuner.specs.rendering import TunedTarget

pytestmark = pytest.mark.slow

LOAD: Object = {
    "requestTemplate": {"path": "/v2/models/light/infer", "body": "{}"},
    "levels": ["1", "2"],
    "windowSeconds": 1,
    "warmupSeconds": 0,
}
LONG: Object = {**LOAD, "levels": ["1"], "windowSeconds": 60}
CONTROLLER_PIDS: set[int] = set()
"""Pids of all controllers so far."""
LOCUSTS: set[processes.ProcessIdentity] = set()
"""All load generators that were children of these controllers when `locusts` was called."""


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the ModelVersion `v-1` is ready."""
    async with await connect(stack.data_dir.kubeconfig, component="test") as client:
        if not (await client.list(kinds.MODEL_VERSION, NAMESPACE)).items:
            await client.create(kinds.MODEL_VERSION, version("v-1", stack.model(1)))
        await until(client, kinds.MODEL_VERSION, "v-1", stacks.settled)
        yield client


def template() -> Object:
    (arm,) = light([{"name": "trial", "modelVersion": "v-1"}])
    arm_template: Object = arm["template"]
    return arm_template


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
    rendered = rendering.pod(TunedTarget("light", "custom", arm), model, (), Prices())
    spec = {
        "experiment": "none",
        "number": 1,
        "template": rendered.template,
        "modelName": "light",
        "load": load,
    }
    await kube.create(kinds.TRIAL, _object(kinds.TRIAL, name, spec))


def experiment(name: str, **spec: Any) -> Object:
    space = [
        {"category": "resource", "parameters": [{"name": "cpu", "feasibleSpace": {"list": ["500m", "1"]}}]}
    ]
    body = {
        "target": {"modelVersion": "v-1", "framework": "custom", "template": template()},
        "tunableParameters": space,
        "prices": {"cpu": "1"},
        "load": {**LOAD, "levels": ["1"]},
        "maxNumTrials": 1,
        **spec,
    }
    return _object(kinds.PROFILING_EXPERIMENT, name, body)


def _object(kind: kinds.Kind, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def is_over(obj: Object) -> bool:
    return (obj.get("status") or {}).get("phase") in FINISHED


def is_measuring(obj: Object) -> bool:
    return (obj.get("status") or {}).get("phase") == "Measuring"


def ready(obj: Object) -> tuple[str, str, str]:
    condition = conditions.find(obj["status"]["conditions"], "Ready") or {}
    return condition["status"], condition["reason"], condition["message"]


def controllers(stack: LiveStack) -> processes.ProcessIdentity:
    process = stack.component("controllers")
    assert process is not None
    CONTROLLER_PIDS.add(process.pid)
    return process


def locusts(stack: LiveStack) -> list[int]:
    """Return the pids of the running load generators, also those of killed controllers."""
    controllers(stack)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if b"tuner.load.driver" in words and _parent(entry) in CONTROLLER_PIDS:
                LOCUSTS.update(filter(None, [processes.identity_of(int(entry.name))]))
    return [process.pid for process in LOCUSTS if processes.is_alive(process)]


def _parent(entry: Path) -> int:
    """Return the parent of a process; the fields of its stat follow its name, which may have spaces."""
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


async def until_nothing_remains(stack: LiveStack, kube: Kube) -> None:
    """Wait until no trial has a Deployment or Pod, and no load generator runs."""
    deadline = time.monotonic() + 20
    while True:
        remaining = [
            obj["metadata"]["name"]
            for kind in (kinds.DEPLOYMENT, kinds.POD)
            for obj in (await kube.list(kind, NAMESPACE, labels=names.TRIAL_LABEL)).items
        ]
        if not remaining and not locusts(stack):
            return
        assert time.monotonic() < deadline, (remaining, locusts(stack))
        await asyncio.sleep(0.1)


async def test_replica_killed_in_a_window_fails_the_trial_as_crashed(stack: LiveStack, kube: Kube) -> None:
    await begin_trial(kube, "killed", LONG)
    await until(kube, kinds.TRIAL, "killed", is_measuring)
    (pod,) = (await kube.list(kinds.POD, NAMESPACE, labels=f"{names.TRIAL_LABEL}=killed")).items
    os.kill(stack.processes(pod)[1].pid, signal.SIGKILL)
    finished = await until(kube, kinds.TRIAL, "killed", is_over, 15)
    assert (finished["status"]["phase"], finished["status"]["reason"]) == ("Failed", "Crashed")
    assert "exit code 137" in finished["status"]["message"]
    await until_nothing_remains(stack, kube)


async def test_killed_generator_is_restarted_and_the_trial_measured(stack: LiveStack, kube: Kube) -> None:
    await begin_trial(kube, "bereft")
    await until(kube, kinds.TRIAL, "bereft", is_measuring)
    generators = locusts(stack)
    assert generators
    for pid in generators:
        os.kill(pid, signal.SIGKILL)
    finished = await until(kube, kinds.TRIAL, "bereft", is_over)
    assert (finished["status"]["phase"], finished["status"]["reason"]) == ("Succeeded", "Measured")
    assert any(note.startswith("LoadRestarted") for note in finished["status"]["notes"])
    assert [window["level"] for window in finished["status"]["windows"]] == [1, 2]
    await until_nothing_remains(stack, kube)


async def test_trial_restarts_when_the_controllers_are_killed(stack: LiveStack, kube: Kube) -> None:
    await begin_trial(kube, "orphaned")
    measuring = await until(kube, kinds.TRIAL, "orphaned", is_measuring)
    first_deployment = await kube.get(kinds.DEPLOYMENT, NAMESPACE, "orphaned")
    old_controllers = controllers(stack)
    assert locusts(stack)
    os.kill(old_controllers.pid, signal.SIGKILL)
    started = measuring["status"]["startTime"]
    await until(
        kube, kinds.TRIAL, "orphaned", lambda obj: is_measuring(obj) and obj["status"]["startTime"] != started
    )
    second_deployment = await kube.get(kinds.DEPLOYMENT, NAMESPACE, "orphaned")
    assert second_deployment["metadata"]["uid"] != first_deployment["metadata"]["uid"]
    finished = await until(kube, kinds.TRIAL, "orphaned", is_over)
    assert (finished["status"]["phase"], finished["status"]["reason"]) == ("Succeeded", "Measured")
    assert controllers(stack) != old_controllers
    assert [window["level"] for window in finished["status"]["windows"]] == [1, 2]
    await until_nothing_remains(stack, kube)


async def test_concurrent_experiments_share_the_machine_and_report_impossibility(
    stack: LiveStack, kube: Kube
) -> None:
    bound = [{"metric": "latency", "percentile": 50, "atMost": "1us"}]
    await kube.create(kinds.PROFILING_EXPERIMENT, experiment("possible"))
    await kube.create(kinds.PROFILING_EXPERIMENT, experiment("impossible", constraints=bound))
    possible = await until(kube, kinds.PROFILING_EXPERIMENT, "possible", is_over)
    assert ready(possible)[:2] == ("True", "Recommended")
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
    await until_nothing_remains(stack, kube)
