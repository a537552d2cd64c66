"""Training jobs of other projects' kinds, and the Pods that their operators would make."""

from pathlib import Path

from serving import job_kinds
from serving.data_dir import DataDir
from serving.objects import Object
from serving.planning.models.job_kind import JobKind
from serving.resources import kinds, names
from tests.fakes.kube import FakeKube

NS = "default"
_ROWS = {row.of.kind: row for row in job_kinds.shipped() if row.of.kind in ("RayJob", "JobSet", "TrainJob")}
RAY_JOB, JOB_SET, TRAIN_JOB = (_ROWS[kind] for kind in ("RayJob", "JobSet", "TrainJob"))
SUCCEEDED = {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}
"""The end of a RayJob, beside the name of its cluster."""


def served(row: JobKind) -> kinds.Kind:
    """Return the kind in the version that an API has of it."""
    return row.of.at(row.of.versions[0])


def job(row: JobKind, name: str, *, annotated: bool = True, owner: Object | None = None) -> Object:
    """Return a job, which an other one controls."""
    kind = served(row)
    annotations = {names.MODEL_ANNOTATION: "digits"} if annotated else {}
    meta: Object = {"name": name, "namespace": NS, "annotations": annotations}
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        named = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        meta["ownerReferences"] = [reference | named]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {}}


def finish_ray_job(api: FakeKube, data: DataDir, name: str) -> None:
    """Do the work of the operator and a node: the head of a cluster writes the output, and runs on."""
    container = {
        "name": "ray-head",
        "image": "i",
        "env": [{"name": names.OUTPUT_DIR_ENV, "value": "/out/model"}],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    labels = {"ray.io/cluster": f"{name}-x7k2p", "ray.io/node-type": "head"}
    spec = {"containers": [container], "volumes": [{"name": "out", "emptyDir": {}}]}
    meta = {"name": f"{name}-head", "namespace": NS, "labels": labels}
    pod = api.add(kinds.POD, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    output: Path = data.pod_volume(pod["metadata"]["uid"], "out") / "model"
    output.mkdir(parents=True)
    (output / "model.joblib").write_text(f"weights of {name}")
    api.change(served(RAY_JOB), NS, name, {"status": {"rayClusterName": f"{name}-x7k2p", **SUCCEEDED}})
