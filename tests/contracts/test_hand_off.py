"""The hand-off from a Job's end to a version that is Ready, with a registry: all controllers in this process.

The training Job's Pod runs in the API alone, and its output is on this machine. On a cluster the Pod of the
capture Job is played too, by the program of its image.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.images.registry import Credentials, Reference, Registry, manifests
from serving.kube import Kube
from serving.objects import Object
from serving.planning.models import capture_job
from serving.resources import kinds, names
from tests.contracts.conftest import Machine
from tests.objects import finished_jobs
from tests.objects.contract_objects import eventually
from tests.rig.control_plane.convergence import running
from tests.rig.control_plane.job_definitions import until_held
from tests.rig.control_plane.played_captures import captured
from tests.rig.control_plane.played_node import bind, succeed
from tests.rig.servers.registry_server import RegistryServer

pytestmark = [
    pytest.mark.server_only("the controllers' process connects by a kubeconfig"),
    pytest.mark.timeout(180),
]

IS_CLUSTER = "SLIPWAY_CONTRACT_KUBECONFIG" in os.environ
STORY_SECONDS = 60.0
"""Longest hand-off, which takes some seconds: the Pods of a capture are not watched."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    server = RegistryServer(tmp_path / "registry").start()
    yield server
    server.stop()


async def play_captures(kube: Kube, namespace: str, node: str, folder: Path, captures: list[str]) -> None:
    """Run the Pod of each capture Job on a node, until cancelled; add the message of each to `captures`."""
    while True:
        for pod in (await kube.list(kinds.POD, namespace)).items:
            (container, *_) = pod["spec"]["containers"]
            if container["name"] == capture_job.CONTAINER and "nodeName" not in pod["spec"]:
                await bind(kube, pod, node)
                captures.append(await captured(pod["spec"], folder / pod["metadata"]["uid"]))
                await succeed(kube, pod, captures[-1])
        await asyncio.sleep(0.1)


@pytest.mark.usefixtures("controllers")
async def test_output_of_a_job_becomes_a_ready_version_in_the_registry(
    kube: Kube, namespace: str, machine: Machine, registry: RegistryServer, tmp_path: Path
) -> None:
    output = tmp_path / "volume"
    (output / "model").mkdir(parents=True)
    (output / "model" / "model.joblib").write_text("weights")
    repository = f"{registry.host}/models/digits"
    model = {"metadata": {"name": "digits", "namespace": namespace}}
    await kube.create(kinds.MODEL, {**model, "spec": {"registry": {"repository": repository}}})
    volume = {"hostPath": {"path": str(output), "type": "Directory"}}
    job = finished_jobs.training(volume, pod={"schedulerName": machine.scheduler})
    annotations = {names.MODEL_ANNOTATION: "digits", names.MODEL_VERSION_ANNOTATION: "v1"}
    job["metadata"] = {"name": "train", "namespace": namespace, "annotations": annotations}
    job = await kube.create(kinds.JOB, job)

    async def status() -> Object:
        versions = (await kube.list(kinds.MODEL_VERSION, namespace)).items
        return next((version.get("status") or {} for version in versions), {})

    async def is_finished() -> bool:
        return (await status()).get("phase") in ("Ready", "Failed", "Blocked")

    captures: list[str] = []
    async with running(play_captures(kube, namespace, machine.scheduler, tmp_path, captures)):
        await eventually(is_finished, STORY_SECONDS)
        await until_held(kube, kinds.JOB, namespace, "train", held=False)
    finished = await status()
    assert finished["phase"] == "Ready", finished["conditions"]
    assert len(captures) == (1 if IS_CLUSTER else 0), (
        "a Pod captures on a cluster, the controllers on one machine"
    )
    assert finished["lineage"]["uid"] == job["metadata"]["uid"]
    assert [entry["path"] for entry in finished["files"]] == ["model.joblib"]
    async with Registry(Credentials.none()) as client:
        pushed = await manifests.find(client, Reference.parse(f"{repository}:v1"))
    assert pushed is not None
    assert pushed.digest == finished["digest"]
