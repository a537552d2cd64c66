"""The objects of the walk: an installation and models of digits for a cluster's registry, from the shipped
manifests and samples.

The images are those of `make images PREFIX=REGISTRY`: components, transfer, sklearn and python.
"""

import copy
import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from serving.objects import Object

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "walk"
_EXAMPLE = "registry.example.com"
"""Host of the registry in the shipped manifests."""
_AUTHORITY = "ca.crt"
_AUTHORITIES = "authorities"
"""Name of the ConfigMap, and of the volume, with the certificate of the registry's authority."""
_MOUNTED = "/etc/authorities"
_TRUST = {"name": "SSL_CERT_FILE", "value": f"{_MOUNTED}/{_AUTHORITY}"}
_MOUNT = {"name": _AUTHORITIES, "mountPath": _MOUNTED, "readOnly": True}


class WalkRegistry(NamedTuple):
    """The registry of the images."""

    prefix: str
    """Of Slipway's images, such as `10.0.0.1:5000/slipway`."""
    authority: str
    """Certificate of its private authority in PEM; empty if it needs none."""

    @property
    def host(self) -> str:
        """Return host and port."""
        return self.prefix.partition("/")[0]

    @property
    def models(self) -> str:
        """Return the repository of the model images."""
        return f"{self.host}/models/walk"


def write_installation(folder: Path, registry: WalkRegistry) -> None:
    """Write a kustomization on `manifests/install` with small requests, as docs/cluster.md has it."""
    config = yaml.safe_load((MANIFESTS / "install" / "config.yaml").read_text())
    config["runtime_images"]["prefix"] = registry.prefix
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / _AUTHORITY).write_text(registry.authority)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(MANIFESTS / "install", folder)],  # kustomize refuses absolute paths
        "images": [{"name": f"{_EXAMPLE}/slipway/components", "newName": f"{registry.prefix}/components"}],
        "configMapGenerator": [
            {
                "name": "slipway",
                "namespace": "slipway-system",
                "behavior": "replace",
                "files": ["config.yaml"],
            },
            {"name": _AUTHORITIES, "namespace": "slipway-system", "files": [_AUTHORITY]},
        ],
        "patches": [{"path": "controllers.yaml"}, {"path": "gateway.yaml"}],
    }
    small = {"resources": {"requests": {"cpu": "100m"}}}
    volumes = [{"name": _AUTHORITIES, "configMap": {"name": _AUTHORITIES}}] if registry.authority else []
    trusting = {"env": [_TRUST], "volumeMounts": [_MOUNT]} if registry.authority else {}
    controllers = {"containers": [{"name": "controllers", **small, **trusting}], "volumes": volumes}
    for file, document in (
        ("kustomization", kustomization),
        ("controllers", _patch("slipway-controllers", controllers)),
        ("gateway", _patch("slipway-gateway", {"containers": [{"name": "gateway", **small}]})),
    ):
        (folder / f"{file}.yaml").write_text(yaml.safe_dump(document))


def _patch(name: str, pod: Object) -> Object:
    meta = {"name": name, "namespace": "slipway-system"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"template": {"spec": pod}},
    }


def namespace_and_model(registry: WalkRegistry) -> list[Object]:
    """Return the namespace, with the registry's authority, and the Model, whose registry needs no login."""
    model, _ = _sample()
    model["spec"]["registry"] = {"repository": registry.models}
    authorities = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _AUTHORITIES, "namespace": NAMESPACE},
        "data": {_AUTHORITY: registry.authority},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [namespace, authorities, model]


def training_job(registry: WalkRegistry, version: str, estimator: str) -> Object:
    """Return the Job of `manifests/samples/captured-job.yaml` for a version: a capture of an emptyDir."""
    _, job = _sample()
    job["metadata"]["name"] = f"train-{version}"
    job["metadata"]["annotations"]["slipway.dev/model-version"] = version
    pod = job["spec"]["template"]["spec"]
    (train,), (capture,) = pod["initContainers"], pod["containers"]
    train["args"][-1] = estimator
    for container in (train, capture):
        container["image"] = container["image"].replace(f"{_EXAMPLE}/slipway", registry.prefix)
    capture["resources"]["requests"]["cpu"] = "100m"
    without_login = ("SLIPWAY_PULL_SECRETS", "SLIPWAY_PULL_SECRETS_DIR")
    capture["env"] = [each for each in capture["env"] if each["name"] not in without_login]
    for variable in capture["env"]:
        if variable["name"] == "SLIPWAY_CAPTURE_REPOSITORY":
            variable["value"] = registry.models
    capture["volumeMounts"] = [each for each in capture["volumeMounts"] if each["name"] != "registry-login"]
    pod["volumes"] = [each for each in pod["volumes"] if each["name"] != "registry-login"]
    if registry.authority:
        capture["env"].append(_TRUST)
        capture["volumeMounts"].append(_MOUNT)
        pod["volumes"].append({"name": _AUTHORITIES, "configMap": {"name": _AUTHORITIES}})
    return job


def claim(name: str, node: str) -> list[Object]:
    """Return a claim and its volume: the directory /var/tmp of a node, in which every user may write."""
    size = {"storage": "1Gi"}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **shared,
            "capacity": size,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/var/tmp"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    claimed = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {**shared, "resources": {"requests": size}},
    }
    return [volume, claimed]


def training_job_on_claim(registry: WalkRegistry, version: str, claim_name: str) -> Object:
    """Return a Job that trains in its only container, with its output in a directory of a claim."""
    job = training_job(registry, version, "logistic")
    pod = job["spec"]["template"]["spec"]
    (train,) = pod.pop("initContainers")
    train["volumeMounts"] = [
        {"name": "output", "mountPath": "/mnt/output", "subPath": f"slipway-{claim_name}"}
    ]
    pod["containers"] = [train]
    pod["volumes"] = [{"name": "output", "persistentVolumeClaim": {"claimName": claim_name}}]
    return job


def _sample() -> tuple[Object, Object]:
    """Return the Model and the Job of the sample, in the namespace of the walk_objects."""
    text = (MANIFESTS / "samples" / "captured-job.yaml").read_text()
    model, job = copy.deepcopy(list(yaml.safe_load_all(text)))
    for obj in (model, job):
        obj["metadata"]["namespace"] = NAMESPACE
    return model, job


def predictor(name: str, version: str, weight: int, **fields: Any) -> Object:
    """Return a predictor with two replicas, unless `autoScale` says otherwise."""
    return {
        "name": name,
        "modelVersion": version,
        "trafficWeight": weight,
        "resources": {"cpu": "200m", "memory": "512Mi"},
        "autoScale": {"minReplicas": 2, "maxReplicas": 2},
        **fields,
    }


def inference(*predictors: Object) -> Object:
    """Return the Inference of the walk_objects."""
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Inference",
        "metadata": {"name": "digits", "namespace": NAMESPACE},
        "spec": {"framework": "sklearn", "predictors": list(predictors)},
    }
