"""The volume with a job's output, and the directory on it, from the spec of the job's Pod. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from serving import errors
from serving.objects import Object
from serving.resources import names


class JobOutput(NamedTuple):
    """The directory `$SLIPWAY_OUTPUT_DIR` of a container."""

    pod: Object
    """The Pod, or a template of the job as a Pod that has only a spec."""
    container: Object
    """The container with the variable."""
    volume: Object
    """The entry of the Pod's `volumes`; empty if the mount names none of them."""
    mount: Object
    """The entry of the container's `volumeMounts`."""
    path: str
    """Path of the directory below the mount; empty for the mount itself."""

    @property
    def directory(self) -> str:
        """Path of the directory in the container."""
        return below(self.mount["mountPath"], self.path)


def of_job(job: Mapping[str, Any], pods: Sequence[Object]) -> JobOutput:
    """Return the output of a job that has succeeded.

    Args:
        job: a job of any kind.
        pods: the Pods that may have the job's output, the best first.

    Raises:
        errors.Permanent: `OutputGone` (no such Pod exists any more), and those of `of_pod`.
    """
    if not pods:
        raise errors.Permanent("OutputGone", f"{full_name(job)} has no succeeded Pod any more")
    return of_pod(job, pods[0])


def of_pod(job: Mapping[str, Any], pod: Object) -> JobOutput:
    """Return the output of a Pod of the job, or of the job's template.

    Raises:
        errors.Permanent: `NoOutputDir` (the variable is not set), `OutputNotOnVolume` (it is not below a
            mounted volume).
    """
    for container in pod["spec"].get("containers") or []:
        for variable in container.get("env") or []:
            if variable["name"] == names.OUTPUT_DIR_ENV and variable.get("value"):
                return _resolved(pod, container, variable["value"])
    raise errors.Permanent(
        "NoOutputDir", f"no container of {full_name(job)} has a value for {names.OUTPUT_DIR_ENV}"
    )


def _resolved(pod: Object, container: Object, directory: str) -> JobOutput:
    """Return the output at a path in the container, with the innermost mount that has it."""

    def depth(mount: Object) -> int:
        return len(_parts(mount["mountPath"]))

    parts = _parts(directory)
    if ".." in parts:
        raise errors.Permanent("OutputNotOnVolume", f"{names.OUTPUT_DIR_ENV} {directory} must not have '..'")
    mounts = [
        mount
        for mount in container.get("volumeMounts") or []
        if parts[: depth(mount)] == _parts(mount["mountPath"])
    ]
    mount = max(mounts, key=depth, default=None)
    if mount is None:
        raise not_on_volume(directory, "a mounted volume")
    volume: Object = next((v for v in pod["spec"].get("volumes") or [] if v["name"] == mount["name"]), {})
    return JobOutput(pod, container, volume, mount, path="/".join(parts[depth(mount) :]))


def full_name(job: Mapping[str, Any]) -> str:
    """Return the job's kind and name for messages, such as `PyTorchJob train`."""
    return f"{job['kind']} {job['metadata']['name']}"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def below(base: str, path: str) -> str:
    """Return `path`, which is relative to `base`, appended to `base`; `base` itself if `path` is empty."""
    return f"{base.rstrip('/')}/{path}" if path else base


def not_on_volume(directory: str, volumes: str) -> errors.Permanent:
    """Return the error of an output that is not on one of these volumes."""
    return errors.Permanent("OutputNotOnVolume", f"{names.OUTPUT_DIR_ENV} {directory} is not below {volumes}")
