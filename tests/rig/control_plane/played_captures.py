"""Capture Jobs whose controller and kubelet are played; their captures are real."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from serving import errors
from serving.images.capturing.output_capture import CaptureSource, capture_to
from serving.images.registry import Credentials, Reference, Registry
from serving.objects import Object
from serving.planning.models import capture, capture_job
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from tests.fakes.kube import FakeKube

Fault = Callable[[Object], str]
"""Returns the termination message with which a capture Job fails at once; empty to let it work."""


class PlayedCaptures:
    """The Job controller and the node of an API in memory: each capture Job runs once.

    `pushes` has the captures that have pushed.
    """

    def __init__(self, root: Path, fault: Fault = lambda job: "") -> None:
        self._root = root
        self._fault = fault
        self.pushes: list[str] = []

    async def run(self, api: FakeKube) -> None:
        """Play until cancelled."""
        while True:
            for job in api.find(kinds.JOB):
                is_ended = conditions.is_true(job, "Complete") or conditions.is_true(job, "Failed")
                if job["metadata"]["name"].startswith("capture-") and not is_ended:
                    await self._finish(api, job)
            await asyncio.sleep(0.002)

    async def _finish(self, api: FakeKube, job: Object) -> None:
        status, condition, phase = 0, "Complete", "Succeeded"
        message = self._fault(job)
        if message:
            status, condition, phase = 1, "Failed", "Failed"
        else:
            message = await captured(job["spec"]["template"]["spec"], self._root / job["metadata"]["uid"])
            self.pushes.append(job["metadata"]["name"])
        meta = job["metadata"]
        if all(stored["metadata"]["uid"] != meta["uid"] for stored in api.find(kinds.JOB)):
            return
        _add_pod(api, job, phase, status, message)
        end = {"status": {"conditions": [{"type": condition, "status": "True"}]}}
        api.change(kinds.JOB, meta["namespace"], meta["name"], end)


async def captured(pod: Object, store: Path) -> str:
    """Capture a hostPath as the container of a capture Job's Pod does; return its termination message."""
    volume, mount = pod["volumes"][0], pod["containers"][0]["volumeMounts"][0]
    variables = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    root = Path(volume["hostPath"]["path"])
    below = Path(variables[names.OUTPUT_DIR_ENV]).relative_to(mount["mountPath"])
    origin = {"kind": "Job", "name": variables[names.JOB_NAME_ENV], "uid": variables[names.JOB_UID_ENV]}
    target = Reference.parse(variables[names.CAPTURE_REPOSITORY_ENV])
    try:
        async with Registry(Credentials.none()) as registry:
            result = await capture_to(registry, target, CaptureSource(root / below, root, origin), store)
    except errors.Permanent as error:
        raise AssertionError(error) from error
    return capture.encode(result)


def _add_pod(api: FakeKube, job: Object, phase: str, status: int, message: str) -> None:
    meta = job["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    pod_meta = {
        "name": f"{meta['name']}-{meta['uid']}",
        "namespace": meta["namespace"],
        "labels": {"batch.kubernetes.io/job-name": meta["name"]},
        "ownerReferences": [owner],
    }
    api.add(kinds.POD, {"metadata": pod_meta, "spec": job["spec"]["template"]["spec"]})
    terminated = {"exitCode": status, "reason": "Error" if status else "Completed", "message": message}
    container = {
        "name": capture_job.CONTAINER,
        "image": "i",
        "ready": False,
        "state": {"terminated": terminated},
    }
    api.change(
        kinds.POD,
        meta["namespace"],
        pod_meta["name"],
        {"status": {"phase": phase, "containerStatuses": [container]}},
    )
