"""Pods run only on the cores of their annotation."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources import kinds, names
from tests.rig.servers.node_process import (
    STARTS,
    NodeProcess,
    agent,
    is_ready,
    log_of,
    main_status,
    phase,
    pod,
    until,
)

NAMESPACE = "default"
SHOWN = "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))), flush=True)"
PROBED = "import os, time; time.sleep(30)"


@pytest.fixture(scope="module", autouse=True)
def node(api_server: DataDir) -> Iterator[NodeProcess]:
    with agent(api_server, NAMESPACE, "forked") as process:
        yield process


def _pinned(name: str, script: str, cores: str, **more: Any) -> dict[str, Any]:
    stored = pod(NAMESPACE, name, script, **more)
    stored["metadata"]["annotations"] = {names.CPUSET_ANNOTATION: cores}
    return stored


@pytest.mark.parametrize("start", STARTS)
async def test_pod_runs_only_on_the_cores_that_it_requests(
    kube: Kube, api_server: DataDir, start: str
) -> None:
    last = max(os.sched_getaffinity(0))
    name = f"pinned-{start}"
    once = _pinned(name, SHOWN, str(last), image=STARTS[start], spec_restartPolicy="Never")
    await kube.create(kinds.POD, once)
    stored = await until(kube, NAMESPACE, name, phase("Succeeded"))
    assert json.loads(log_of(api_server, stored)) == [last]


async def test_exec_probe_runs_on_the_pods_cores(kube: Kube) -> None:
    last = max(os.sched_getaffinity(0))
    check = f"import os, sys; sys.exit(os.sched_getaffinity(0) != {{{last}}})"
    probe = {"exec": {"command": ["python3", "-c", check]}, "timeoutSeconds": 10}
    await kube.create(kinds.POD, _pinned("probed", PROBED, str(last), readinessProbe=probe))
    await until(kube, NAMESPACE, "probed", is_ready)


async def test_pod_reports_a_requested_core_that_does_not_exist(kube: Kube) -> None:
    await kube.create(kinds.POD, _pinned("beyond", SHOWN, "9999"))
    stored = await until(
        kube,
        NAMESPACE,
        "beyond",
        lambda p: bool(main_status(p).get("state", {}).get("waiting", {}).get("message")),
    )
    waiting = main_status(stored)["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "metadata.annotations[slipway.dev/cpus]: this machine has no core 9999" in waiting["message"]
