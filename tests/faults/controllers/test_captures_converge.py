"""On a cluster, versions of Jobs converge to the same objects when writes fail or the controllers die.

The outputs are captured by Jobs, to a real registry.
"""

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import job_kinds
from serving.controllers.models.handoff import HandoffController
from serving.controllers.models.model import ModelController
from serving.controllers.models.modelversion import ModelVersionController
from serving.controllers.models.training_jobs import TrainingJobs
from serving.data_dir import DataDir
from serving.images.registry import Credentials, Reference, Registry, manifests
from serving.kube import Watches
from serving.objects import Object
from serving.planning.models.handoff import HANDED_OFF_ANNOTATION
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, ModelsSettings
from tests.fakes.kube import FakeKube
from tests.objects import finished_jobs
from tests.rig.control_plane.convergence import QUICK, Case, until
from tests.rig.control_plane.model_objects import final_state, find, is_held
from tests.rig.control_plane.played_captures import PlayedCaptures
from tests.rig.servers.registry_server import RegistryServer

NS = "default"
SETTINGS = dataclasses.replace(
    DEFAULTS,
    controllers=dataclasses.replace(
        QUICK, build_backoff_base_seconds=0.01, build_backoff_cap_seconds=0.05, progress_seconds=0.01
    ),
    models=ModelsSettings(capture="job"),
    registry=dataclasses.replace(DEFAULTS.registry, attempts=1, backoff_base_seconds=0.01),
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    server = RegistryServer(tmp_path_factory.mktemp("captures") / "registry").start()
    yield server
    server.stop()


def ready(api: FakeKube, version: str) -> Object:
    """Return the condition `Ready` of a version."""
    status = find(api, kinds.MODEL_VERSION, version).get("status") or {}
    return conditions.find(status.get("conditions"), "Ready") or {}


def reported(api: FakeKube, model: str) -> tuple[int, str]:
    """Return the number of versions, and the latest one, that the status of a Model has."""
    status = find(api, kinds.MODEL, model).get("status") or {}
    return status.get("versions", 0), (status.get("latestVersion") or {}).get("name", "")


def captures(api: FakeKube) -> list[str]:
    named = (job["metadata"]["name"] for job in api.find(kinds.JOB))
    return [name for name in named if name.startswith("capture-")]


class Cluster:
    """An API and a registry; each run has a directory of its own."""

    def __init__(self, root: Path, registry: RegistryServer) -> None:
        self._numbers = itertools.count()
        self._root = root
        self.registry = registry
        self.run = root
        self.captures = PlayedCaptures(root)

    def arrange(self) -> FakeKube:
        self.run = self._root / str(next(self._numbers))
        self.captures = PlayedCaptures(self.run / "captures", _fault)
        return FakeKube()

    @property
    def repository(self) -> str:
        return f"{self.registry.host}/models/digits"

    def add_model(self, api: FakeKube, name: str) -> None:
        api.add(kinds.MODEL, {"metadata": {"name": name, "namespace": NS}, "spec": {}})

    def train(self, api: FakeKube, name: str, model: str, volume: Object | None = None) -> Object:
        """Add a Job that writes its output to a hostPath; return it."""
        directory = self.run / "volumes" / name
        job = finished_jobs.training(volume or {"hostPath": {"path": str(directory)}}, name=name)
        annotations = {names.MODEL_ANNOTATION: model, names.MODEL_VERSION_ANNOTATION: f"v-{name}"}
        job["metadata"] = {"name": name, "namespace": NS, "annotations": annotations}
        (directory / "model").mkdir(parents=True)
        (directory / "model" / "model.joblib").write_text(f"weights of {name}")
        return api.add(kinds.JOB, job)

    async def finish(self, api: FakeKube, job: Object, message: str = "") -> None:
        """End the Job once it is held, with the termination message of its Pod."""
        name = job["metadata"]["name"]
        await until(lambda: is_held(api, name), f"{name} is held")
        api.add(kinds.POD, finished_jobs.pod_of(job, message=message))
        end = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
        api.change(kinds.JOB, NS, name, end)

    async def control(self, api: FakeKube) -> None:
        watches = Watches(api.client("watches"))
        data = DataDir(self.run / "data")
        jobs = TrainingJobs(watches, job_kinds.shipped())
        controllers = (
            ModelController(api.client("model"), QUICK, watches),
            ModelVersionController(api.client("modelversion"), SETTINGS, data, watches, jobs),
            HandoffController(api.client("hand-off"), QUICK, watches, jobs),
        )
        async with asyncio.TaskGroup() as group:
            for runner in (*controllers, watches):
                group.create_task(runner.run())

    async def play(self, api: FakeKube) -> None:
        await self.captures.run(api)

    async def story(self, api: FakeKube) -> Object:
        """Two captures of a Model wait for its registry; one succeeds at once, the other fails at first."""
        names = ("good", "flaky")
        self.add_model(api, "digits")
        jobs = [self.train(api, name, "digits") for name in names]
        # Affinities and policies of failures are a cluster's: the embedded server refuses them.
        api.unchecked |= {kinds.JOB, kinds.POD}
        for job in jobs:
            await self.finish(api, job)
        for name in names:
            await until(
                lambda name=name: ready(api, f"v-{name}").get("reason") == "RegistryMissing", f"{name} waits"
            )
            assert is_held(api, name)
        spec = {"spec": {"registry": {"repository": self.repository}}}
        api.change(kinds.MODEL, NS, "digits", spec)
        for name in names:
            await until(lambda name=name: ready(api, f"v-{name}").get("status") == "True", f"{name} is ready")
            await until(lambda name=name: not is_held(api, name), f"{name} is released")
        await until(lambda: not captures(api), "the captures are removed")
        await until(lambda: reported(api, "digits") == (2, "v-good"), "the Model reports both versions")
        return final_state(api, specs=False)


def _fault(job: Object) -> str:
    is_first = job["metadata"]["annotations"][names.ATTEMPT_ANNOTATION] == "0"
    is_flaky = job["metadata"]["name"].startswith("capture-v-flaky-")
    return "DiskFull: the disk is full" if is_first and is_flaky else ""


def case(cluster: Cluster) -> Case:
    return Case(cluster.arrange, cluster.control, cluster.play, cluster.story)


async def test_captured_versions_have_the_status_of_pushed_images(
    tmp_path: Path, registry: RegistryServer
) -> None:
    cluster = Cluster(tmp_path, registry)
    end, _ = await case(cluster).undisturbed()
    _, _, status, _ = end["ModelVersion v-good"]
    assert status["phase"] == "Ready"
    assert status["image"] == f"{cluster.repository}@{status['digest']}"
    assert [file["path"] for file in status["files"]] == ["model.joblib"]
    assert status["lineage"].items() >= {"kind": "Job", "name": "good", "uid": "uid"}.items()
    assert status["contents"]["containsCode"]
    assert (status["attempts"], end["ModelVersion v-flaky"][2]["attempts"]) == (0, 1)
    assert end["Job good"][0]["annotations"][HANDED_OFF_ANNOTATION] == "v-good"
    assert len(cluster.captures.pushes) == 2
    async with Registry(Credentials.none()) as client:
        for tag in ("v-good", "v-good-modelpack"):
            tagged = Reference.parse(f"{cluster.repository}:{tag}")
            image = await manifests.find(client, tagged)
            assert image is not None, tag
            assert tag != "v-good" or image.digest == status["digest"]


async def test_objects_are_the_same_when_the_answer_to_each_write_is_lost_in_turn(
    tmp_path: Path, registry: RegistryServer
) -> None:
    assert await case(Cluster(tmp_path, registry)).survives_failures(done=True) > 20


async def test_objects_are_the_same_when_the_controller_is_killed_before_each_write_in_turn(
    tmp_path: Path, registry: RegistryServer
) -> None:
    assert await case(Cluster(tmp_path, registry)).survives_kills(done=False) > 20
