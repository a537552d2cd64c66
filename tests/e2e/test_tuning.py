"""Tuning on a real stack: from a manifest to a predictor that runs the recommended spec."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serving.kube import connect
from serving.objects import Object
from serving.resources import kinds, names
from tests.rig.servers.stack import (
    NAMESPACE,
    LiveStack,
    deployed,
    light,
    pods,
    predictors,
    running,
    settled,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXPERIMENT: Object = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "ProfilingExperiment",
    "metadata": {"name": "tiny"},
    "spec": {
        "target": {"inference": "tiny"},
        "tunableParameters": [
            {
                "category": "resource",
                "parameters": [{"name": "cpu", "feasibleSpace": {"list": ["500m", "1"]}}],
            },
            {"category": "env", "parameters": [{"name": "THREADS", "feasibleSpace": {"list": ["1", "2"]}}]},
        ],
        "constraints": [{"metric": "errorRate", "atMost": "50%"}],
        "prices": {"cpu": "0.04", "memory": "0.005"},
        "load": {
            "requestTemplate": {"path": "/v2/models/tiny/infer", "body": "{}"},
            "levels": ["2"],
            "windowSeconds": 1,
            "warmupSeconds": 0,
        },
        "maxNumTrials": 3,
        "warmStart": {"enabled": False},
    },
}
"""The smallest experiment: the current spec and two of four, with one window each."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    yield from running(tmp_path_factory.mktemp("tuning"))


def slipway(stack: LiveStack, *arguments: str) -> str:
    """Run a command, and return its standard output."""
    completed = subprocess.run(
        [sys.executable, "-m", "serving.app", *arguments, "--data-dir", str(stack.data_dir.root)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


async def run(stack: LiveStack, *arguments: str) -> str:
    return await asyncio.to_thread(slipway, stack, *arguments)


async def test_an_experiment_is_measured_explained_and_applied(stack: LiveStack, tmp_path: Path) -> None:
    manifest = tmp_path / "tuning.yaml"
    manifest.write_text(yaml.safe_dump(EXPERIMENT))
    resources = {"cpu": "2", "memory": "1Gi"}
    arms = [{**arm, "resources": resources} for arm in light(predictors(only=("v-1", 1)))]
    async with deployed(stack, "tiny", arms, models=1, framework="custom") as kube:
        await until(kube, kinds.INFERENCE, "tiny", settled)
        output = await run(stack, "tune", "-f", str(manifest), "--watch")
        assert "tiny-1 Measured" in output, output
        assert output.splitlines()[-1].split(maxsplit=1)[1].startswith("Succeeded"), output
        status = json.loads(await run(stack, "tune", "status", "tiny", "-o", "json"))["status"]
        spec = {setting["name"]: setting["value"] for setting in status["recommendation"]["settings"]}

        page = tmp_path / "tiny.html"
        await run(stack, "tune", "report", "tiny", "--out", str(page))
        assert f"cpu={spec['cpu']}" in page.read_text()
        assert f"cpu={spec['cpu']}" in await run(stack, "tune", "report", "tiny")

        await run(stack, "tune", "apply", "tiny")
        stored = await until(kube, kinds.INFERENCE, "tiny", settled)
        (predictor,) = stored["spec"]["predictors"]
        assert predictor["resources"] == {"cpu": spec["cpu"], "memory": "1Gi"}
        (container,) = predictor["template"]["containers"]
        assert container["env"] == [{"name": "THREADS", "value": spec["THREADS"]}]
        cpu_limits = [
            pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]
            for pod in await pods(kube, "tiny")
            if "deletionTimestamp" not in pod["metadata"]
        ]
        assert spec["cpu"] in cpu_limits
        assert "unchanged" in await run(stack, "tune", "apply", "tiny")


async def test_finished_trials_leave_only_their_results(stack: LiveStack) -> None:
    async with await connect(stack.data_dir.kubeconfig, component="test") as kube:
        trials = (await kube.list(kinds.TRIAL, NAMESPACE)).items
        assert trials
        assert {trial["status"]["phase"] for trial in trials} <= {"Succeeded", "Failed"}
        for kind in (kinds.DEPLOYMENT, kinds.POD):
            assert (await kube.list(kind, NAMESPACE, labels=names.EXPERIMENT_LABEL)).items == []
        (profile,) = (await kube.list(kinds.CAPACITY_PROFILE, NAMESPACE)).items
        assert profile["spec"]["points"][0]["throughput"] > 0
