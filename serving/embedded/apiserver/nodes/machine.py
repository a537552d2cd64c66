"""Facts of this machine that a Node object has."""

import os
import platform
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from serving.system import procfs


@dataclass(frozen=True)
class Machine:
    """The properties of a machine that a kubelet reports."""

    uid: str
    """Made from `machine_id`, so that it is the same after a restart."""
    hostname: str
    architecture: str
    """Go's name (GOARCH): `amd64`, `arm64`."""
    operating_system: str
    kernel: str
    os_image: str
    machine_id: str
    boot_id: str
    cores: int
    """The number of cores that this process may use."""
    memory_bytes: int


_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@cache
def this_machine() -> Machine:
    """Read the facts of this machine; a text that cannot be read is empty."""
    architecture, machine_id = platform.machine(), _line("/etc/machine-id")
    return Machine(
        uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, machine_id)),
        hostname=platform.node(),
        architecture=_GO_ARCHITECTURES.get(architecture, architecture),
        operating_system=platform.system().lower(),
        kernel=platform.release(),
        os_image=_os_image(),
        machine_id=machine_id,
        boot_id=procfs.boot_id(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=procfs.total_memory(),
    )


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _line(path: str) -> str:
    """Return the text of a file of one line; empty where the file cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
