"""The volume with a job's output, from the job's Pod. Pure: where its bytes are is for the caller to know."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from serving import errors
from serving.objects import Object
from serving.resources import names


class JobOutput(NamedTuple):
    """The directory `$SLIPWAY_OUTPUT_DIR` of a container."""

    pod: Object
    container: Object
    volume: Object
    """Of the Pod's spec."""
    mount: Object
    """Of the container."""
    path: str
    """Below the mount; empty for the mount itself."""

    @property
    def directory(self) -> str:
        """Its path in the container."""
        return below(self.mount["mountPath"], self.path)


def of_job(job: Mapping[str, Any], pods: Sequence[Object]) -> JobOutput:
    """Return the output of a job that has succeeded.

    Args:
        job: of any kind.
        pods: those that may have its output, the best first.

    Raises:
        errors.Permanent: `OutputGone` (no such Pod is left), and those of `of_pod`.
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
    parts = _parts(directory)
    if ".." in parts:
        raise errors.Permanent("OutputNotOnVolume", f"{names.OUTPUT_DIR_ENV} {directory} must not have '..'")
    mounts = [
        mount
        for mount in container.get("volumeMounts") or []
        if parts[: len(_parts(mount["mountPath"]))] == _parts(mount["mountPath"])
    ]
    mount = max(mounts, key=lambda mount: len(_parts(mount["mountPath"])), default=None)
    if mount is None:
        raise not_on_volume(directory, "a mounted volume")
    volume: Object = next((v for v in pod["spec"].get("volumes") or [] if v["name"] == mount["name"]), {})
    return JobOutput(pod, container, volume, mount, "/".join(parts[len(_parts(mount["mountPath"])) :]))


def full_name(job: Mapping[str, Any]) -> str:
    """Return kind and name for messages: `PyTorchJob train`."""
    return f"{job['kind']} {job['metadata']['name']}"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def below(base: str, path: str) -> str:
    """Return the path of what is at `path` below `base`; an empty `path` is `base`."""
    return f"{base.rstrip('/')}/{path}" if path else base


def not_on_volume(directory: str, volumes: str) -> errors.Permanent:
    """Return the error of an output that is not on one of these volumes."""
    return errors.Permanent("OutputNotOnVolume", f"{names.OUTPUT_DIR_ENV} {directory} is not below {volumes}")
