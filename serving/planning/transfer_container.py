"""Containers of the image `transfer` in Pods of users: without rights, and with logins as files. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from serving.objects import Object
from serving.planning.inference import pod_defaults
from serving.settings import RuntimeImageSettings

SECRETS_MOUNT = "/run/slipway/pull-secrets"
"""Path of a volume with logins, in which the file of each Secret has the Secret's name."""
USER = 65532
"""User of Slipway's images."""
SECURITY: Mapping[str, Any] = {
    **pod_defaults.RESTRICTED,
    "readOnlyRootFilesystem": True,
    # Set, as the Pod's securityContext may name another user for the server.
    "runAsUser": USER,
    "runAsGroup": USER,
}
_SECRET_KEY = ".dockerconfigjson"  # noqa: S105 a key of a Secret


def container(name: str, module: str, images: RuntimeImageSettings) -> Object:
    """Return a container that runs a module; the last line of its log is its termination message.

    Args:
        name: of the container.
        module: of Python, with dots.
        images: those of Slipway.
    """
    return {
        "name": name,
        "image": f"{images.prefix}/{images.copier}{images.tag and f':{images.tag}'}",
        **({"imagePullPolicy": images.pull_policy} if images.pull_policy else {}),
        "command": ["python3", "-m", module],
        "securityContext": dict(SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def secrets_volume(name: str, secrets: Sequence[str]) -> Object:
    """Return the volume with a file for each Secret; one that is missing does not keep the Pod from
    starting, so that the program can name it.
    """
    sources = [
        {"secret": {"name": secret, "items": [{"key": _SECRET_KEY, "path": secret}], "optional": True}}
        for secret in secrets
    ]
    return {"name": name, "projected": {"sources": sources}}
