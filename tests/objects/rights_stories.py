"""Objects of users for whose sake the accounts of an installation use every one of their rights.

Their Pods name a scheduler, which a test plays: no image is fetched.
"""

import json
from pathlib import Path

from serving.objects import Object
from serving.resources import names
from tests.objects.contract_objects import deployment
from tests.rig.servers.gateway import endpoint_slice, route

_LOAD = {
    "requests": {"name": "recorded", "key": "requests"},
    "levels": [1],
    "windowSeconds": 1,
    "warmupSeconds": 0,
}
"""One load, which takes seconds."""


def version(namespace: str, name: str, model: str, folder: Path) -> Object:
    """Return a ModelVersion of files that it writes into a new folder below `folder`."""
    path = folder / name
    path.mkdir()
    (path / "model.bin").write_text(name)
    (path / "slipway.json").write_text(json.dumps({"framework": "sklearn"}))
    spec = {"modelName": model, "source": {"path": str(path)}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def model(namespace: str, name: str, **spec: object) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def predictor(scheduler: str, **fields: object) -> Object:
    container = {"name": "predictor", "image": "example.com/none", "command": ["none"]}
    return {
        "name": "stable",
        "modelVersion": "v1",
        "template": {"containers": [container], "schedulerName": scheduler},
        **fields,
    }


def inference(namespace: str, name: str, *predictors: Object) -> Object:
    spec = {"framework": "custom", "predictors": list(predictors)}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def job(namespace: str, scheduler: str) -> Object:
    """Return a Job that hands an output on a volume off."""
    container = {
        "name": "train",
        "image": "example.com/none",
        "command": ["none"],
        "env": [{"name": names.OUTPUT_DIR_ENV, "value": "/out/model"}],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    volume = {"name": "out", "nfs": {"server": "files.invalid", "path": "/trained"}}
    pod = {
        "restartPolicy": "Never",
        "schedulerName": scheduler,
        "containers": [container],
        "volumes": [volume],
    }
    annotations = {names.MODEL_ANNOTATION: "trained"}
    return {
        "metadata": {"name": "train", "namespace": namespace, "annotations": annotations},
        "spec": {"template": {"spec": pod}, "backoffLimit": 0},
    }


def requests(namespace: str) -> Object:
    """Return a ConfigMap with a recorded request."""
    data = {"requests": json.dumps({"method": "GET", "path": "/"})}
    return {"metadata": {"name": "recorded", "namespace": namespace}, "data": data}


def experiment(namespace: str, name: str, scheduler: str) -> Object:
    """Return an experiment of one spec."""
    cpu = {"name": "cpu", "feasibleSpace": {"list": ["500m"]}}
    target = {"modelVersion": "v1", "framework": "custom", "template": predictor(scheduler)["template"]}
    spec = {
        "target": target,
        "tunableParameters": [{"category": "resource", "parameters": [cpu]}],
        "prices": {"cpu": 1},
        "load": _LOAD,
        "maxNumTrials": 1,
    }
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def foreign_trial(namespace: str, name: str, scheduler: str) -> Object:
    """Return a Trial that belongs to no experiment."""
    template = {"spec": predictor(scheduler)["template"]}
    spec = {"experiment": "other", "number": 1, "modelName": "other", "template": template, "load": _LOAD}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def workload(namespace: str, name: str, scheduler: str) -> Object:
    """Return a Deployment of one replica."""
    body = deployment(namespace, name)
    body["spec"]["replicas"] = 1
    body["spec"]["template"]["spec"]["schedulerName"] = scheduler
    return body


def stateful_set(namespace: str, name: str, scheduler: str) -> Object:
    body = workload(namespace, name, scheduler)
    return {**body, "kind": "StatefulSet", "spec": {**body["spec"], "serviceName": name}}


def autoscaler(namespace: str, kind: str, name: str, least: int) -> Object:
    target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": 3}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def on_demand_route(namespace: str, name: str, port: int) -> Object:
    """Return the Route of a backend that the activator wakes."""
    body = route(name, [("a", 10_000)], namespace=namespace, port=port, on_demand=["a"])
    return _stored(body, **{names.ON_DEMAND_LABEL: "true"})


def plain_route(namespace: str, name: str, port: int) -> Object:
    return _stored(route(name, [("a", 10_000)], namespace=namespace, port=port))


def expired_lease(namespace: str, name: str) -> Object:
    """Return the Lease of a gateway that was killed long ago."""
    spec = {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def replica(namespace: str, service: str, address: str, port: int, pod: str) -> Object:
    """Return the EndpointSlice of one ready replica, for the gateway and the activator."""
    body = endpoint_slice(service, [address], port=port, namespace=namespace)
    body["endpoints"][0]["targetRef"] = {"kind": "Pod", "name": pod, "namespace": namespace}
    labels = {**body["metadata"]["labels"], names.ON_DEMAND_LABEL: "true"}
    return _stored(body, **labels)


def _stored(body: Object, **labels: str) -> Object:
    meta = {"name": body["metadata"]["name"], "namespace": body["metadata"]["namespace"], "labels": labels}
    return {**body, "metadata": meta}
