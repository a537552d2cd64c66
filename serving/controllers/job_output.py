"""The directory of a job's output on this machine, from the Pod that has it. Pure: it reads no file."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from serving import errors
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import names


class JobOutput(NamedTuple):
    """A directory, the root of the volume that contains it, and the Pod that wrote it."""

    path: Path
    volume: Path
    pod_uid: str


def locate(job: Mapping[str, Any], pods: Sequence[Object], data: DataDir) -> JobOutput:
    """Return the directory that is `$SLIPWAY_OUTPUT_DIR` in the first of these Pods.

    Args:
        job: which has succeeded.
        pods: those that may have its output, the best first.
        data: directory of this machine's Pods.

    Raises:
        errors.Permanent: `OutputGone` (no such Pod is left), `NoOutputDir` (the variable is not set),
            `OutputNotOnVolume` (it is not below a mounted emptyDir or hostPath).
    """
    name = f"{job['kind']} {job['metadata']['name']}"
    if not pods:
        raise errors.Permanent("OutputGone", f"{name} has no succeeded Pod any more")
    pod = pods[0]
    for container in pod["spec"].get("containers") or []:
        for variable in container.get("env") or []:
            if variable["name"] == names.OUTPUT_DIR_ENV and variable.get("value"):
                return _resolve(pod, container, PurePosixPath(variable["value"]), data)
    raise errors.Permanent("NoOutputDir", f"no container of {name} has a value for {names.OUTPUT_DIR_ENV}")


def _resolve(pod: Object, container: Object, output_dir: PurePosixPath, data: DataDir) -> JobOutput:
    if ".." in output_dir.parts:
        raise errors.Permanent("OutputNotOnVolume", f"{names.OUTPUT_DIR_ENV} {output_dir} must not have '..'")
    mounts = [
        mount
        for mount in container.get("volumeMounts") or []
        if output_dir.is_relative_to(PurePosixPath(mount["mountPath"]))
    ]
    for mount in sorted(mounts, key=lambda mount: -len(PurePosixPath(mount["mountPath"]).parts)):
        root = _volume(pod, mount["name"], data)
        if root is None:
            break
        below = root / mount["subPath"] if mount.get("subPath") else root
        return JobOutput(
            below / output_dir.relative_to(PurePosixPath(mount["mountPath"])), root, pod["metadata"]["uid"]
        )
    message = f"{names.OUTPUT_DIR_ENV} {output_dir} is not below a mounted emptyDir or hostPath volume"
    raise errors.Permanent("OutputNotOnVolume", message)


def _volume(pod: Object, name: str, data: DataDir) -> Path | None:
    volume: Object = next((v for v in pod["spec"].get("volumes") or [] if v["name"] == name), {})
    if "emptyDir" in volume:
        return data.pod_volume(pod["metadata"]["uid"], name)
    if "hostPath" in volume:
        return Path(volume["hostPath"]["path"])
    return None
