"""The log of a run exists before clients can read the run's status."""

import contextlib
import os
import select
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from serving.embedded.kubelet.container.launch import Launch, start
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.kubelet.resources.cgroup_limits import CgroupLayout
from serving.embedded.kubelet.resources.cgroups import Cgroups


def test_log_exists_before_the_shim_opens_it(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    log = tmp_path / "0.log"
    spec = {
        "directory": str(run.path),
        "argv": ["/bin/sh", "-c", "echo logged"],
        "env": {},
        "stamp": None,
        "cwd": "/tmp",
        "log": str(log),
        "log_bytes": 1000,
        "cores": [],
        "user": None,
        "view": None,
        "filter": "",
    }
    zygotes = SimpleNamespace(images=frozenset())
    node = cast("Node", SimpleNamespace(jail=None, cgroups=Cgroups(CgroupLayout()), zygotes=zygotes))
    pod = {"metadata": {"uid": "u", "namespace": "default", "name": "p"}}
    started = start(Launch(node, pod, {"name": "c", "image": "-"}, run, spec))
    handle = started.pidfd
    try:
        assert log.exists()
        assert log.stat().st_mode & 0o777 == 0o600
        assert started.connection.recv(1) == b""
        assert run.identities() is not None
        ended, _, _ = select.select([handle], [], [], 20)
        assert ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        started.connection.close()
    assert log.read_text() == "logged\n"
