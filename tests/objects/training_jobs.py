"""Training jobs of other projects' kinds, and the Pods that their operators would make."""

from collections.abc import Iterable
from pathlib import Path

from serving import job_kinds
from serving.data_dir import DataDir
from serving.objects import Object
from serving.planning.models.job_kind import JobKind
from serving.resources import kinds, names
from serving.resources.job_kind import Sign
from tests.fakes.kube import FakeKube

NS = "default"
_ROWS = {str(row.api_kind): row for row in job_kinds.shipped()}
PYTORCH_JOB = _ROWS["pytorchjobs.kubeflow.org"]
RAY_JOB = _ROWS["rayjobs.ray.io"]
JOB_SET = _ROWS["jobsets.jobset.x-k8s.io"]
TRAIN_JOB = _ROWS["trainjobs.trainer.kubeflow.org"]
SUCCEEDED = {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}
"""The end of a RayJob, beside the name of its cluster."""


def served(row: JobKind) -> kinds.Kind:
    """Return the kind in the version that an API has of it."""
    return row.api_kind.at(row.api_kind.versions[0])


def definition(row: JobKind) -> Object:
    """Return a definition of the kind that takes every object, with its status as a subresource."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == row.api_kind.versions[0],
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }
        for version in row.api_kind.versions
    ]
    names_of_kind = {
        "kind": row.api_kind.kind,
        "plural": row.api_kind.plural,
        "singular": row.api_kind.kind.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": str(row.api_kind),
            # The API refuses groups of Kubernetes' own projects without it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": row.api_kind.group,
            "scope": "Namespaced",
            "names": names_of_kind,
            "versions": versions,
        },
    }


def status_of(signs: Iterable[Sign]) -> Object:
    """Return a status with the first of these signs."""
    sign = next(iter(signs))
    if sign.condition:
        return {"conditions": [{"type": sign.condition, "status": "True"}]}
    status: Object = {}
    for path, values in sign.fields.items():
        *parents, last = path.split(".")[1:]
        place = status
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = values[0]
    return status


def job(
    row: JobKind, name: str, *, namespace: str = NS, annotated: bool = True, owner: Object | None = None
) -> Object:
    """Return a job, which `owner` controls."""
    kind = served(row)
    annotations = {names.MODEL_ANNOTATION: "digits"} if annotated else {}
    meta: Object = {"name": name, "namespace": namespace, "annotations": annotations}
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
