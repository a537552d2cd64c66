"""The volume with a model's files in a predictor's Pod: an image volume, or a copy by an init container.

Both look alike for the containers that mount it. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from serving.objects import Object
from serving.planning import transfer_container
from serving.planning.models import version
from serving.planning.models.volume import VolumeSource
from serving.resources import names
from serving.resources.formats import quantity
from serving.settings import RuntimeImageSettings

VOLUME = "model"
COPIER = "copy-model"
"""Name of the init container."""
SECRETS_VOLUME = "model-pull-secrets"
_NO_TOKEN_VOLUME = "no-token"  # noqa: S105 the name of a volume
_MODULE = "serving.images.copying.process"
_TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 a path
_MIB = 1024 * 1024
_SPARE_BYTES = 16 * _MIB
"""Of the volume, for `files.json` and directories: a Pod that exceeds the size of its volume is evicted."""
_FILE_BYTES = 4096
"""One block for each file, as the last block of a file is partly empty."""
_COPIER_RESOURCES = ("cpu", "memory")
"""Resources of the predictor's container that the init container gets too."""
_LEAST_MEMORY = "128Mi"
"""Least memory of the init container, whose program takes 90 MiB with four downloads at once."""


def mount() -> Object:
    """Return the mount of the volume in the predictor's container."""
    return {"name": VOLUME, "mountPath": names.MODEL_MOUNT, "readOnly": True}


def with_model(
    spec: Object, model_version: Mapping[str, Any], source: VolumeSource, images: RuntimeImageSettings
) -> Object:
    """Return a Pod's spec with the volume, and with the init container of a copy.

    Args:
        spec: the Pod's spec with its containers, the predictor's first, and its pull Secrets.
        model_version: the ModelVersion, with the status of its image.
        source: the source of the model's files.
        images: the settings of Slipway's own images.
    """
    if source == "image":
        image = {"reference": model_version["status"]["image"], "pullPolicy": "IfNotPresent"}
        return {**spec, "volumes": [{"name": VOLUME, "image": image}]}
    listed = [secret.get("name") for secret in spec.get("imagePullSecrets") or []]
    secrets = list(dict.fromkeys(filter(None, listed)))
    return {
        **spec,
        "volumes": [
            {"name": VOLUME, "emptyDir": _empty_dir(model_version)},
            {"name": _NO_TOKEN_VOLUME, "emptyDir": {}},
            *([transfer_container.secrets_volume(SECRETS_VOLUME, secrets)] if secrets else []),
        ],
        "initContainers": [_copier(model_version, secrets, spec["containers"][0], images)],
    }


def _copier(
    model_version: Mapping[str, Any], secrets: Sequence[str], server: Object, images: RuntimeImageSettings
) -> Object:
    """Return the init container that copies the model's files into the volume.

    Args:
        model_version: the ModelVersion, with the status of its image.
        secrets: names of the Pod's pull Secrets.
        server: the predictor's container.
        images: the settings of Slipway's own images.
    """
    variables = {
        names.MODEL_IMAGE_ENV: model_version["status"]["image"],
        names.MODEL_FILES_DIGEST_ENV: version.files_digest(model_version),
        names.MODEL_VOLUME_ENV: names.MODEL_MOUNT,
    }
    mounts: list[Object] = [
        {"name": VOLUME, "mountPath": names.MODEL_MOUNT},
        # A mount at this path keeps the token of the Pod's service account out of the container.
        {"name": _NO_TOKEN_VOLUME, "mountPath": _TOKEN_MOUNT, "readOnly": True},
    ]
    if secrets:
        path = transfer_container.SECRETS_MOUNT
        variables |= {names.PULL_SECRETS_ENV: ",".join(secrets), names.PULL_SECRETS_DIR_ENV: path}
        mounts.append({"name": SECRETS_VOLUME, "mountPath": path, "readOnly": True})
    container: Object = {
        **transfer_container.container(COPIER, _MODULE, images),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": mounts,
    }
    resources = _resources(server.get("resources") or {})
    return {**container, "resources": resources} if resources else container


def _resources(server: Mapping[str, Any]) -> Object:
    """Return the init container's processor and memory: those of the predictor's container.

    The two run one after the other. With equal resources the Pod keeps its QoS class, and its requests unless
    the copy needs more memory.
    """
    amounts: Object = {}
    for kind in ("requests", "limits"):
        values = {
            name: value for name, value in (server.get(kind) or {}).items() if name in _COPIER_RESOURCES
        }
        if "memory" in values:
            values["memory"] = _memory_for_copy(values["memory"])
        if values:
            amounts[kind] = values
    return amounts


def _memory_for_copy(memory: str | float) -> str | float:
    """Return the larger of `memory` and `_LEAST_MEMORY`; the API refuses a text that is no quantity."""
    try:
        return max(memory, _LEAST_MEMORY, key=quantity.parse)
    except ValueError:
        return memory


def _empty_dir(model_version: Mapping[str, Any]) -> Object:
    """Return the emptyDir for the model's files, with a limit of its size if their size is known."""
    status = model_version["status"]
    if not (size := status.get("size")):
        return {}
    needed_bytes = size + len(status.get("files") or ()) * _FILE_BYTES + _SPARE_BYTES
    needed_mib = -(-needed_bytes // _MIB)  # rounded up
    return {"sizeLimit": f"{needed_mib}Mi"}
