"""A run of a container without a node agent: a shim, and the process of its command."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from serving.embedded.kubelet.container.launch import Launch, Started, start
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.system.isolation.cgroup_layout import CgroupLayout


@contextlib.contextmanager
def launched(run: RunDirectory, log: Path, script: str) -> Iterator[Started]:
    """Start a shell's script; its shim has ended after the block."""
    spec = {
        "directory": str(run.path),
        "argv": ["/bin/sh", "-c", script],
        "env": {},
        "cwd": "/tmp",
        "log": str(log),
        "log_bytes": 1000,
        "binding": None,
        "cores": [],
        "oom_score": 0,
        "user": None,
        "view": None,
        "filter": "",
    }
    zygotes = SimpleNamespace(images=frozenset())
    node = cast("Node", SimpleNamespace(isolation=None, cgroups=Cgroups(CgroupLayout()), zygotes=zygotes))
    pod = {"metadata": {"uid": "u", "namespace": "default", "name": "p"}}
    started = start(Launch(node, pod, {"name": "c", "image": "-"}, run, spec))
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # the test has waited for it
            os.waitid(os.P_PIDFD, started.pidfd, os.WEXITED)
        os.close(started.pidfd)
        started.connection.close()
