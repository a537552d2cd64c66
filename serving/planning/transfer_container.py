"""The container that copies a model into a Pod (`serving.planning.inference.model_volume`), or captures the
output of a Job (`serving.planning.models.capture_job`). Both run one image, `transfer` by default. Pure.

The container runs in Kubernetes namespaces of users. It has therefore no rights in the API, and gets the
logins of registries as files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from serving.objects import Object
from serving.planning.inference import pod_defaults
from serving.settings import RuntimeImageSettings

SECRETS_MOUNT = "/run/slipway/pull-secrets"
"""Mount path of `secrets_volume`: a file for each Secret, named like the Secret."""
USER = 65532
"""User and group, by number, that Slipway's images run as."""
SECURITY: Mapping[str, Any] = {
    **pod_defaults.RESTRICTED,
    "readOnlyRootFilesystem": True,
    # Set, as the securityContext of the Pod may name another user, for the model server.
    "runAsUser": USER,
    "runAsGroup": USER,
}
_SECRET_KEY = ".dockerconfigjson"  # noqa: S105 the key of a kubernetes.io/dockerconfigjson Secret


def container(name: str, module: str, images: RuntimeImageSettings) -> Object:
    """Return a container without volumes and variables that runs a program.

    If the program fails without a termination message, the end of its log becomes the message.

    Args:
        name: the name of the container.
        module: the dotted name of the program's Python module.
        images: the names of Slipway's images; the container runs `images.copier`.
    """
    tag = f":{images.tag}" if images.tag else ""
    return {
        "name": name,
        "image": f"{images.prefix}/{images.copier}{tag}",
        **({"imagePullPolicy": images.pull_policy} if images.pull_policy else {}),
        "command": ["python3", "-m", module],
        "securityContext": dict(SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def secrets_volume(name: str, secrets: Sequence[str]) -> Object:
    """Return a volume with a file for each of the named dockerconfigjson Secrets.

    Secrets are optional, as a missing one would keep the Pod from starting; instead, the program of the
    container reports it by name.
    """
    sources = [
        {"secret": {"name": secret, "items": [{"key": _SECRET_KEY, "path": secret}], "optional": True}}
        for secret in secrets
    ]
    return {"name": name, "projected": {"sources": sources}}
