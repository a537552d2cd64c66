"""Where a Job's output lies on this machine, from the Pod that succeeded. Pure: it looks at no file."""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from serving import errors
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import names


class Output(NamedTuple):
    """A directory, and the volume's root that it lies in."""

    path: Path
    volume: Path


def locate(job: Mapping[str, Any], pods: Iterable[Object], data: DataDir) -> Output:
    """Return the directory that the Job's newest succeeded Pod calls `$SLIPWAY_OUTPUT_DIR`.

    Raises:
        errors.Permanent: `OutputGone` (no succeeded Pod is left), `NoOutputDir` (the variable is not set),
            `OutputNotOnVolume` (it is not below a mounted emptyDir or hostPath).
    """
    name = job["metadata"]["name"]
    done = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Succeeded"]
    if not done:
        raise errors.Permanent("OutputGone", f"Job {name} has no succeeded Pod any more")
    pod = max(done, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    for container in pod["spec"].get("containers") or []:
        for variable in container.get("env") or []:
            if variable["name"] == names.OUTPUT_DIR_ENV and variable.get("value"):
                return _resolve(pod, container, PurePosixPath(variable["value"]), data)
    raise errors.Permanent(
        "NoOutputDir", f"no container of Job {name} has a value for {names.OUTPUT_DIR_ENV}"
    )


def _resolve(pod: Object, container: Object, wanted: PurePosixPath, data: DataDir) -> Output:
    if ".." in wanted.parts:
        raise errors.Permanent("OutputNotOnVolume", f"{names.OUTPUT_DIR_ENV} {wanted} must not have '..'")
    mounts = [
        mount
        for mount in container.get("volumeMounts") or []
        if wanted.is_relative_to(PurePosixPath(mount["mountPath"]))
    ]
    for mount in sorted(mounts, key=lambda mount: -len(PurePosixPath(mount["mountPath"]).parts)):
        root = _volume(pod, mount["name"], data)
        if root is None:
            break
        below = root / mount["subPath"] if mount.get("subPath") else root
        return Output(below / wanted.relative_to(PurePosixPath(mount["mountPath"])), root)
    message = f"{names.OUTPUT_DIR_ENV} {wanted} is not below a mounted emptyDir or hostPath volume"
    raise errors.Permanent("OutputNotOnVolume", message)


def _volume(pod: Object, name: str, data: DataDir) -> Path | None:
    volume: Object = next((v for v in pod["spec"].get("volumes") or [] if v["name"] == name), {})
    if "emptyDir" in volume:
        return data.pod_volume(pod["metadata"]["uid"], name)
    if "hostPath" in volume:
        return Path(volume["hostPath"]["path"])
    return None
