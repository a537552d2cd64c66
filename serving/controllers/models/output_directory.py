"""The directory of a job's output on this machine, from the Pod that has it. Pure: it reads no file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from serving.data_dir import DataDir
from serving.objects import Object
from serving.planning.models import job_output


class OutputDirectory(NamedTuple):
    """A directory, the root of the volume that contains it, and the Pod that wrote it."""

    path: Path
    volume: Path
    pod_uid: str


def locate(job: Mapping[str, Any], pods: Sequence[Object], data: DataDir) -> OutputDirectory:
    """Return the directory that is `$SLIPWAY_OUTPUT_DIR` in the first of these Pods.

    Args:
        job: which has succeeded.
        pods: those that may have its output, the best first.
        data: directory of this machine's Pods.

    Raises:
        errors.Permanent: as `job_output.of_job`; `OutputNotOnVolume` also for other volumes than an emptyDir
            and a hostPath.
    """
    output = job_output.of_job(job, pods)
    uid, volume = output.pod["metadata"]["uid"], output.volume
    if "emptyDir" in volume:
        root = data.pod_volume(uid, volume["name"])
    elif "hostPath" in volume:
        root = Path(volume["hostPath"]["path"])
    else:
        raise job_output.not_on_volume(output.directory, "a mounted emptyDir or hostPath volume")
    below = root / output.mount["subPath"] if output.mount.get("subPath") else root
    return OutputDirectory(below / output.path, root, uid)
