"""Jobs that train, their Pods, and the ends of both."""

from typing import Any

from serving import job_kinds
from serving.objects import Object
from serving.planning.models.job_kind import TrainingJob
from serving.resources import kinds, names

CLAIM: Object = {"persistentVolumeClaim": {"claimName": "trained"}}
NFS: Object = {"nfs": {"server": "files.example", "path": "/exports/trained"}}
HOST_PATH: Object = {"hostPath": {"path": "/srv/trained"}}
EMPTY_DIR: Object = {"emptyDir": {}}


def training(
    volume: Object, *, name: str = "train", mount: Object | None = None, pod: Object | None = None
) -> Object:
    """Return a Job that writes to `model` below a volume, with further fields of its mount and its Pod."""
    container = {
        "name": "train",
        "image": "i",
        "env": [{"name": names.OUTPUT_DIR_ENV, "value": "/out/model"}],
        "volumeMounts": [{"name": "out", "mountPath": "/out", **(mount or {})}],
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "out", **volume}],
        **(pod or {}),
    }
    meta = {"name": name, "namespace": "default", "uid": "j1"}
    head = {"apiVersion": kinds.JOB.api_version, "kind": kinds.JOB.kind}
    return {**head, "metadata": meta, "spec": {"template": {"spec": spec}}}


def batch(job: Object) -> TrainingJob:
    """Return a Job with the rules of its kind."""
    row = job_kinds.shipped().find(kinds.JOB.group, kinds.JOB.kind)
    assert row is not None
    return TrainingJob(row, job)


def ended(job: Object, condition: str = "Complete", **fields: Any) -> Object:
    """Return a Job that has ended."""
    return {**job, "status": {"conditions": [{"type": condition, "status": "True", **fields}]}}


def pod_of(job: Object, phase: str = "Succeeded", *, node: str = "n1", **terminated: Any) -> Object:
    """Return a Pod of a Job on a node, whose only container has ended with these fields of its state."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "controller": True}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    status = {"name": container["name"], "image": container["image"], "ready": False}
    status["state"] = {"terminated": {"exitCode": 0, "reason": "Completed", **terminated}}
    return {
        "metadata": {
            "name": f"{job['metadata']['name']}-x",
            "namespace": job["metadata"]["namespace"],
            "labels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]},
            "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {**job["spec"]["template"]["spec"], "nodeName": node},
        "status": {"phase": phase, "containerStatuses": [status]},
    }
