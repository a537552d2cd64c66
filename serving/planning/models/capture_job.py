"""The capture Job: its Pod mounts the volume of a training job's output, and pushes the output's image. Pure.

The Pod has the volume read-only, the user of the Pod that wrote the output, the login of the Model's
registry, and no right in the cluster. It reports in its termination message, so that it needs no access to
the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.objects import Object
from serving.planning import transfer_container
from serving.planning.models.job_output import JobOutput, below, not_on_volume
from serving.resources import kinds, names
from serving.resources.kubernetes import owner_references
from serving.resources.model import ModelSpec
from serving.settings import RuntimeImageSettings

CONTAINER = "capture"
VOLUMES = ("persistentVolumeClaim", "nfs", "hostPath")
"""Sources of volumes that outlive the Pod that wrote them, and that another Pod can mount."""
REFUSED = 65
"""Exit status of a capture that would fail in every other Pod of the Job too: EX_DATAERR of sysexits.h."""
_MODULE = "serving.images.capturing.process"
_OUTPUT, _STORE, _LOGIN = "output", "store", "registry-login"
_OUTPUT_MOUNT = "/mnt/output"
_STORE_MOUNT = "/mnt/store"
_RETRIES = 3
"""Pods after the first one, within minutes. If all fail, the attempt at the version has failed."""
_KEPT_SECONDS = 24 * 3600
"""A failed capture Job can be inspected for a day. If the controllers have not read the result of a Job by
then, they capture the output again."""
_RESOURCES: Mapping[str, Any] = {
    # Hashing and sending take a core or two; memory is a few buffers for any size, and page cache.
    "requests": {"cpu": "500m", "memory": "256Mi"},
    "limits": {"cpu": "2", "memory": "1Gi"},
}
_FAIL_AT_ONCE: Mapping[str, Any] = {
    "action": "FailJob",
    "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [REFUSED]},
}
_IGNORE_DRAINS: Mapping[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
_SHARED_SECURITY = ("supplementalGroups", "fsGroup", "seLinuxOptions")
"""Fields of the training Pod's securityContext that the capture Pod needs to read its files."""
_NAME_CHARACTERS = 49
"""Of the version's name in the Job's: with `capture-`, a hyphen and 5 digits of the uid, 63 characters."""


@dataclass(frozen=True)
class Capture:
    """An output, and the ModelVersion and Model for which it is captured."""

    version: Mapping[str, Any]
    """The ModelVersion, which owns the Job."""
    job: Mapping[str, Any]
    """The job that has written the output."""
    output: JobOutput
    """The output, on a volume of `VOLUMES`."""
    policy: ModelSpec
    """The spec of the Model, with a registry."""

    @property
    def login(self) -> str:
        """Name of the Secret with the login of the registry; empty for none."""
        registry = self.policy.registry
        return (registry.secret_name if registry is not None else None) or ""


def name(version: Mapping[str, Any]) -> str:
    """Return the name of a version's capture Job: a later version of the same name has another one."""
    meta = version["metadata"]
    stem = meta["name"][:_NAME_CHARACTERS].rstrip("-.")
    return f"capture-{stem}-{meta['uid'].replace('-', '')[:5]}"


def render(capture: Capture, images: RuntimeImageSettings) -> Object:
    """Return the capture Job.

    Args:
        capture: the output, its ModelVersion and its Model.
        images: the settings of Slipway's own images.

    Raises:
        errors.Permanent: `OutputNotOnVolume`, the mount has a `subPathExpr`, which depends on the Pod.
    """
    version, output = capture.version, capture.output
    meta = version["metadata"]
    if output.mount.get("subPathExpr"):
        raise not_on_volume(output.directory, "a mount without subPathExpr; use subPath")
    # The controllers have no right to the finalizers of ModelVersions.
    owner = owner_references.controller_reference(kinds.MODEL_VERSION, version, blocks_deletion=False)
    return {
        "apiVersion": kinds.JOB.api_version,
        "kind": kinds.JOB.kind,
        "metadata": {
            "name": name(version),
            "namespace": meta["namespace"],
            "labels": _labels(version),
            "annotations": {names.ATTEMPT_ANNOTATION: str(attempts(version))},
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": _RETRIES,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "podFailurePolicy": {"rules": [_FAIL_AT_ONCE, _IGNORE_DRAINS]},
            "template": {"metadata": {"labels": _labels(version)}, "spec": _pod(capture, images)},
        },
    }


def attempts(version: Mapping[str, Any]) -> int:
    """Return the failed attempts at a version so far."""
    return int((version.get("status") or {}).get("attempts", 0))


def _labels(version: Mapping[str, Any]) -> Object:
    return {names.MANAGED_BY_LABEL: "slipway", names.MODEL_LABEL: version["spec"]["modelName"]}


def _pod(capture: Capture, images: RuntimeImageSettings) -> Object:
    training_pod = capture.output.pod["spec"]
    volume = {key: value for key, value in capture.output.volume.items() if key != "name"}
    volumes = [{"name": _OUTPUT, **volume}, {"name": _STORE, "emptyDir": {}}]
    volumes += [transfer_container.secrets_volume(_LOGIN, [capture.login])] if capture.login else []
    spec: Object = {
        "restartPolicy": "Never",  # so that the Pods of failures stay, with their messages
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [_container(capture, images)],
        "volumes": volumes,
    }
    shared = training_pod.get("securityContext") or {}
    if context := {field: shared[field] for field in _SHARED_SECURITY if shared.get(field) is not None}:
        if "fsGroup" in context:
            context["fsGroupChangePolicy"] = "OnRootMismatch"
        spec["securityContext"] = context
    if images.pull_secret:
        spec["imagePullSecrets"] = [{"name": images.pull_secret}]
    return spec | _placement(training_pod, is_local="hostPath" in volume)


def _placement(training_pod: Mapping[str, Any], *, is_local: bool) -> Object:
    """Return the fields of the Pod's spec that select its node: the node of the training Pod, if possible.

    Unless the output `is_local` to that node, another one will do if it is full or gone: the training Pod has
    ended, so that even a claim that only one node mounts at a time is free again.

    Args:
        training_pod: the spec of the Pod that wrote the output.
        is_local: whether only that Pod's node has the output.
    """
    placement: Object = {}
    if training_pod.get("tolerations"):
        placement["tolerations"] = training_pod["tolerations"]
    # Where the affinity below requires one node, a selector could only exclude it: labels of nodes change.
    if training_pod.get("nodeSelector") and not is_local:
        placement["nodeSelector"] = training_pod["nodeSelector"]
    if node := training_pod.get("nodeName"):
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity: Object = (
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            if is_local
            else {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
        )
        placement["affinity"] = {"nodeAffinity": affinity}
    return placement


def _container(capture: Capture, images: RuntimeImageSettings) -> Object:
    output, policy, login = capture.output, capture.policy, capture.login
    assert policy.registry is not None
    variables = {
        names.OUTPUT_VOLUME_ENV: _OUTPUT_MOUNT,
        names.OUTPUT_DIR_ENV: below(_OUTPUT_MOUNT, output.path),
        names.CAPTURE_STORE_ENV: _STORE_MOUNT,
        names.CAPTURE_REPOSITORY_ENV: policy.registry.repository,
        names.CAPTURE_COMPRESSION_ENV: policy.compression,
        names.CAPTURE_FRAMEWORK_ENV: capture.version["spec"].get("framework", ""),
        names.JOB_API_VERSION_ENV: capture.job["apiVersion"],
        names.JOB_KIND_ENV: capture.job["kind"],
        names.JOB_NAME_ENV: capture.job["metadata"]["name"],
        names.JOB_UID_ENV: capture.job["metadata"]["uid"],
    }
    mount = {"name": _OUTPUT, "mountPath": _OUTPUT_MOUNT, "readOnly": True}
    if output.mount.get("subPath"):
        mount["subPath"] = output.mount["subPath"]
    mounts: list[Object] = [mount, {"name": _STORE, "mountPath": _STORE_MOUNT}]
    if login:
        path = transfer_container.SECRETS_MOUNT
        variables |= {names.PULL_SECRETS_ENV: login, names.PULL_SECRETS_DIR_ENV: path}
        mounts.append({"name": _LOGIN, "mountPath": path, "readOnly": True})
    container = transfer_container.container(CONTAINER, _MODULE, images)
    container["securityContext"] |= _user(output)
    return {
        **container,
        "env": [{"name": name, "value": value} for name, value in variables.items() if value],
        "volumeMounts": mounts,
        "resources": dict(_RESOURCES),
    }


def _user(output: JobOutput) -> Object:
    """Return the user and group of the container that wrote the output, if its spec names them.

    Other users may not be able to read its files. The user root is omitted, as no container of Slipway runs
    as root: files of root must be readable for all.
    """
    shared = output.pod["spec"].get("securityContext") or {}
    own = output.container.get("securityContext") or {}
    user = own.get("runAsUser", shared.get("runAsUser"))
    group = own.get("runAsGroup", shared.get("runAsGroup"))
    return {
        **({"runAsUser": user} if user else {}),
        **({"runAsGroup": group} if group is not None else {}),
    }
