"""The termination message: its fields in a container's spec, and its bounds in a Pod's status. Pure.

https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any

from serving.embedded.pod_spec.volume_mounts import normal_path, within
from serving.errors import Cause

PATH, POLICY = "terminationMessagePath", "terminationMessagePolicy"
DEFAULTS = {PATH: "/dev/termination-log", POLICY: "File"}
FALLBACK = "FallbackToLogsOnError"
POD_BYTES = 12 * 1024
"""Bytes of all messages in the status of one Pod, in equal shares for its containers, as in the kubelet."""
_PRIVATE = "/tmp/"  # noqa: S108 every run of a container has its own


def falls_back(container: Mapping[str, Any]) -> bool:
    """Whether the end of the log takes the place of an empty message file."""
    return container.get(POLICY) == FALLBACK


def private_file(container: Mapping[str, Any]) -> str | None:
    """Return the path of the message file, relative to the private /tmp of a run of the container.

    None for the default path: /dev is the machine's, and containers cannot make files in it.
    """
    path = str(container.get(PATH) or "")
    return path.removeprefix(_PRIVATE) if path.startswith(_PRIVATE) else None


def bounded(text: str, limit: int) -> str:
    """Return the end of the text, in `limit` bytes of UTF-8 at most: programs print their reason last."""
    return text.encode()[-limit:].decode(errors="ignore") if limit > 0 else ""


def refusals(path: str, container: Mapping[str, Any], *, mounts: bool) -> Iterator[Cause]:
    """Yield why a node cannot read the termination message of a container.

    Args:
        path: the container's path, such as `spec.containers[0]`.
        container: its spec.
        mounts: whether the node can mount, so that each run of a container has its own /tmp.
    """
    policy, file = container.get(POLICY) or DEFAULTS[POLICY], container.get(PATH) or DEFAULTS[PATH]
    if policy not in (DEFAULTS[POLICY], FALLBACK):
        yield Cause(f"{path}.{POLICY}", f"must be {DEFAULTS[POLICY]} or {FALLBACK}, got {policy!r}")
    if file == DEFAULTS[PATH]:
        return
    if not file.startswith(_PRIVATE) or normpath(file) != file:
        yield Cause(f"{path}.{PATH}", f"must be {DEFAULTS[PATH]} or a file below {_PRIVATE}, got {file!r}")
    elif not mounts:
        yield Cause(f"{path}.{PATH}", f"{file!r} needs a node that runs as root: else /tmp is the machine's")
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if within(file, normal_path(mount["mountPath"])):
            yield Cause(f"{path}.{PATH}", f"volumeMounts[{index}] must not cover {file!r}")
