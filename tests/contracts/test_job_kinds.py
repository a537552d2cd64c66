"""The hand-off of jobs of other projects' kinds on a cluster, which gets and loses their definitions."""

import asyncio
import os
from typing import Any

import pytest

from serving import errors, job_kinds
from serving.kube import Kube, optional_informer
from serving.objects import Object
from serving.planning.models.handoff import HANDED_OFF_ANNOTATION
from serving.planning.models.job_kind import JobKind
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from tests.objects.contract_objects import eventually, gone
from tests.objects.training_jobs import JOB_SET, PYTORCH_JOB, RAY_JOB, TRAIN_JOB, job, served
from tests.rig.control_plane.job_definitions import CRD, SECONDS, defined, end, until_held

pytestmark = [
    pytest.mark.server_only("kinds of other projects are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="kinds of other projects are a cluster's"
    ),
    pytest.mark.timeout(300),
]

ROWS = [row for row in job_kinds.shipped() if served(row) is not kinds.JOB]


@pytest.fixture(autouse=True)
def _ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_informer, "ASK_SECONDS", 0.5)


async def create_model(kube: Kube, namespace: str) -> None:
    """Create the Model of all jobs here: with a registry, as nothing is captured without one."""
    spec = {"registry": {"repository": "registry.invalid/digits"}}
    await kube.create(kinds.MODEL, {"metadata": {"name": "digits", "namespace": namespace}, "spec": spec})


async def create(kube: Kube, row: JobKind, namespace: str, name: str, **more: Any) -> Object:
    return await kube.create(served(row), job(row, name, namespace=namespace, **more))


@pytest.mark.usefixtures("controllers")
async def test_jobs_of_every_kind_are_handed_off_once_when_the_kinds_appear_after_the_start(
    kube: Kube, namespace: str
) -> None:
    await create_model(kube, namespace)
    async with defined(kube, *ROWS):
        for number, row in enumerate(ROWS):
            for name in (f"good-{number}", f"bad-{number}"):
                await create(kube, row, namespace, name)
        for number, row in enumerate(ROWS):
            for name, outcome in ((f"good-{number}", "Succeeded"), (f"bad-{number}", "Failed")):
                await until_held(kube, served(row), namespace, name, held=True)
                await end(kube, row, namespace, name, outcome)
        expected = set()
        for number, row in enumerate(ROWS):
            bad = await until_held(kube, served(row), namespace, f"bad-{number}", held=False)
            assert HANDED_OFF_ANNOTATION not in bad["metadata"]["annotations"]
            good = await until_held(kube, served(row), namespace, f"good-{number}", held=False)
            version = good["metadata"]["annotations"][HANDED_OFF_ANNOTATION]
            expected.add((version, row.api_kind.group, row.api_kind.kind, good["metadata"]["uid"]))
        made = set()
        for version in (await kube.list(kinds.MODEL_VERSION, namespace)).items:
            source = version["spec"]["source"]["job"]
            made.add(
                (
                    version["metadata"]["name"],
                    source["apiVersion"].split("/")[0],
                    source["kind"],
                    source["uid"],
                )
            )
            ready = conditions.find(version["status"]["conditions"], "Ready") or {}
            assert ready["reason"] == "OutputGone"  # no operator has made Pods
        assert made == expected


@pytest.mark.usefixtures("controllers")
async def test_output_of_a_master_is_captured_from_its_claim_beside_workers(
    kube: Kube, namespace: str
) -> None:
    await create_model(kube, namespace)
    async with defined(kube, PYTORCH_JOB):
        owner = await create(kube, PYTORCH_JOB, namespace, "train")
        await until_held(kube, served(PYTORCH_JOB), namespace, "train", held=True)
        for role in ("master", "worker"):
            await create_succeeded_pod(kube, namespace, owner, role)
        await end(kube, PYTORCH_JOB, namespace, "train", "Succeeded")
        captures: list[Object] = []

        async def is_captured() -> bool:
            captures[:] = (await kube.list(kinds.JOB, namespace)).items
            return bool(captures)

        await eventually(is_captured, SECONDS)
    volumes = captures[0]["spec"]["template"]["spec"]["volumes"]
    claims = [volume["persistentVolumeClaim"] for volume in volumes if "persistentVolumeClaim" in volume]
    assert [claim["claimName"] for claim in claims] == ["of-master"]


async def create_succeeded_pod(kube: Kube, namespace: str, owner: Object, role: str) -> None:
    """Create a Pod as the training operator makes one, and end it; its output is on a claim."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    labels = {"job-name": "train", "replica-type": role, "replica-index": "0"}
    labels |= {"job-role": "master"} if role == "master" else {}
    container = {
        "name": "pytorch",
        "image": "registry.invalid/train",
        "env": [{"name": names.OUTPUT_DIR_ENV, "value": "/out"}],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    pod: Object = {
        "metadata": {
            "name": f"train-{role}-0",
            "namespace": namespace,
            "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()},
            "ownerReferences": [reference | {key: owner["metadata"][key] for key in ("name", "uid")}],
        },
        "spec": {
            "schedulerName": "nobody",
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": f"of-{role}"}}],
        },
    }

    async def is_created() -> bool:
        try:
            await kube.create(kinds.POD, pod)
        except errors.Forbidden:  # the namespace has no service account yet
            return False
        return True

    await eventually(is_created, SECONDS)
    ended = {"status": {"phase": "Succeeded"}}
    await kube.patch(kinds.POD, namespace, pod["metadata"]["name"], ended, subresource="status")


@pytest.mark.usefixtures("controllers")
async def test_other_kinds_are_handed_off_when_one_disappears_and_its_versions_wait(
    kube: Kube, namespace: str
) -> None:
    async def create_version(name: str) -> None:
        source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train"}
        spec = {"modelName": "digits", "source": {"job": source}}
        meta = {"name": name, "namespace": namespace}
        await kube.create(kinds.MODEL_VERSION, {"metadata": meta, "spec": spec})

    async def until_reason(name: str, *expected: str) -> None:
        async def has() -> bool:
            stored = await kube.get(kinds.MODEL_VERSION, namespace, name)
            ready = conditions.find((stored.get("status") or {}).get("conditions"), "Ready") or {}
            return ready.get("reason") in expected

        await eventually(has, SECONDS)

    async with defined(kube, JOB_SET):
        async with defined(kube, RAY_JOB):
            await create(kube, RAY_JOB, namespace, "train", annotated=False)
            await create_version("before")
            await until_reason("before", "JobRunning")
        # The cluster deletes the jobs of the kind, and the kind, in no certain order for others.
        await until_reason("before", "JobNotFound", "JobKindUnavailable")
        await create_version("after")
        await until_reason("after", "JobKindUnavailable")
        await create(kube, JOB_SET, namespace, "set")
        await until_held(kube, served(JOB_SET), namespace, "set", held=True)
        async with defined(kube, RAY_JOB):
            await until_reason("after", "JobNotFound")


@pytest.mark.usefixtures("controllers")
async def test_definition_with_a_held_job_ends_when_it_is_deleted(kube: Kube, namespace: str) -> None:
    async with defined(kube, RAY_JOB):
        await create(kube, RAY_JOB, namespace, "train")
        await until_held(kube, served(RAY_JOB), namespace, "train", held=True)
        await kube.delete(CRD, None, str(RAY_JOB.api_kind))
        await eventually(lambda: gone(kube, CRD, None, str(RAY_JOB.api_kind)), SECONDS)


@pytest.mark.usefixtures("controllers")
async def test_only_the_upper_job_is_held_when_one_belongs_to_another(kube: Kube, namespace: str) -> None:
    async with defined(kube, TRAIN_JOB, JOB_SET):
        upper = await create(kube, TRAIN_JOB, namespace, "upper")
        lower = await create(kube, JOB_SET, namespace, "lower", owner=upper)
        await create(kube, JOB_SET, namespace, "single")
        await until_held(kube, served(TRAIN_JOB), namespace, "upper", held=True)
        await until_held(kube, served(JOB_SET), namespace, "single", held=True)
        await until_held(kube, served(JOB_SET), namespace, lower["metadata"]["name"], held=False)
        for row, name in ((TRAIN_JOB, "upper"), (JOB_SET, "single")):
            await end(kube, row, namespace, name, "Failed")
            await until_held(kube, served(row), namespace, name, held=False)


@pytest.mark.usefixtures("controllers")
async def test_two_writers_of_a_jobs_finalizers_keep_both(kube: Kube, namespace: str) -> None:
    async with defined(kube, RAY_JOB):
        await create(kube, RAY_JOB, namespace, "train")

        async def add(number: int) -> None:
            while True:
                stored = await kube.get(served(RAY_JOB), namespace, "train")
                meta = stored["metadata"]
                finalizers = [*(meta.get("finalizers") or []), f"example.com/own-{number}"]
                patch = {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}
                try:
                    await kube.patch(served(RAY_JOB), namespace, "train", {"metadata": patch})
                except errors.Conflict:
                    continue
                return

        await asyncio.gather(*(add(number) for number in range(8)))
        held = await until_held(kube, served(RAY_JOB), namespace, "train", held=True)
        own = {f"example.com/own-{number}" for number in range(8)}
        assert own <= set(held["metadata"]["finalizers"])
        await end(kube, RAY_JOB, namespace, "train", "Failed")
        released = await until_held(kube, served(RAY_JOB), namespace, "train", held=False)
        assert set(released["metadata"]["finalizers"]) == own
        await kube.patch(served(RAY_JOB), namespace, "train", {"metadata": {"finalizers": None}})
