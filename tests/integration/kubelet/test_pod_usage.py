"""The usage of Pods, from the node through the API to the tuner, `kubectl top` and `slipway top`."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.kubelet.devices.gpus import Gpus
from serving.embedded.kubelet.resources.usage import UsageCollector
from serving.kube import Kube
from serving.resources import kinds
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage
from serving.system.isolation.cgroup_layout import CgroupLayout
from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl
from tests.rig.servers.node_process import (
    STARTS,
    NodeProcess,
    agent,
    is_ready,
    main_status,
    phase,
    pod,
    until,
    until_gone,
)
from tuner.trials import usage

NAMESPACE = "default"
MIB = 1 << 20

IDLE = "import time\nheld = bytearray(60 << 20)\ntime.sleep(60)"
BUSY = "held = bytearray(60 << 20)\nwhile True: pass"
FAMILY = """
import os, time
held = bytearray(60 << 20)
for page in range(0, len(held), 4096): held[page] = 1
os.fork() and os.fork()
time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def node(api_server: DataDir) -> Iterator[NodeProcess]:
    with agent(api_server, NAMESPACE, "forked") as process:
        yield process


async def _counters(kube: Kube, name: str, at_least: int) -> ContainerUsage:
    """Poll until a Pod uses this much memory."""
    stored = await until(kube, NAMESPACE, name, phase("Running"))
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        try:
            counters = await usage.read(kube, stored)
        except errors.Temporary:
            continue
        if counters.working_set >= at_least:
            return counters
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} uses {counters}")


async def _gone(kube: Kube, name: str) -> None:
    await kube.delete(kinds.POD, NAMESPACE, name, grace_seconds=0)
    await until_gone(kube, NAMESPACE, name)


@pytest.mark.parametrize("start", STARTS)
async def test_processor_time_and_memory_are_counted_when_a_pod_works(kube: Kube, start: str) -> None:
    name, limits = f"busy-{start}", {"cpu": "300m", "memory": "256Mi"}
    busy = pod(NAMESPACE, name, BUSY, image=STARTS[start], resources={"limits": limits})
    obj = await kube.create(kinds.POD, busy)
    first = await _counters(kube, name, 60 * MIB)
    obj = await kube.get(kinds.POD, NAMESPACE, name)
    begun = time.monotonic()
    second = first
    while second.cpu_seconds < first.cpu_seconds + 0.2:
        assert time.monotonic() < begun + 15, (first, second)
        await asyncio.sleep(0.1)
        second = await usage.read(kube, obj)
    stored = usage.between(first, second, time.monotonic() - begun)
    assert 60 * MIB <= stored.memory_bytes <= 256 * MIB
    assert second.peak >= second.working_set
    assert 0 < stored.cpu_cores < 1.2
    await _gone(kube, name)


@pytest.mark.root
async def test_throttling_is_counted_when_the_limit_is_reached(kube: Kube) -> None:
    await kube.create(kinds.POD, pod(NAMESPACE, "held", BUSY, resources={"limits": {"cpu": "20m"}}))
    stored = await until(kube, NAMESPACE, "held", phase("Running"))
    if any(condition.get("reason") == "NotEnforced" for condition in stored["status"]["conditions"]):
        pytest.skip("processor limits are not enforced here: no cgroup controller for cpu")
    counters, deadline = ContainerUsage(), time.monotonic() + 15
    while counters.throttled_periods < 2:
        assert time.monotonic() < deadline, counters
        counters = await _counters(kube, "held", 1)
        await asyncio.sleep(0.1)
    assert counters.throttled_periods <= counters.periods
    await _gone(kube, "held")


@pytest.mark.root
async def test_oom_kill_of_a_run_is_counted_by_the_next(kube: Kube) -> None:
    greedy = (
        "import os, time\nif os.path.exists(os.environ['MARK']): time.sleep(60)\n"
        "open(os.environ['MARK'], 'w').close()\nb'x' * (200 << 20)"
    )
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    greedy_pod = pod(
        NAMESPACE,
        "greedy",
        greedy,
        env=[{"name": "MARK", "value": "/kept/mark"}],
        volumeMounts=mounts,
        resources={"limits": {"memory": "64Mi"}},
        spec_volumes=[{"name": "kept", "emptyDir": {}}],
    )
    await kube.create(kinds.POD, greedy_pod)
    again = await until(
        kube, NAMESPACE, "greedy", lambda p: main_status(p).get("restartCount") == 1 and is_ready(p)
    )
    if main_status(again)["lastState"]["terminated"]["reason"] != "OOMKilled":
        pytest.skip("memory limits are not enforced here: no cgroup controller for memory")
    assert (await _counters(kube, "greedy", 1)).oom_events == 1


async def test_shared_pages_of_a_pods_processes_count_once(kube: Kube) -> None:
    await kube.create(kinds.POD, pod(NAMESPACE, "family", FAMILY))
    counters = await _counters(kube, "family", 60 * MIB)
    assert counters.working_set < 160 * MIB, "three processes that share 60 MiB, and an interpreter"


async def test_usage_comes_from_proc_without_cgroups(kube: Kube, node: NodeProcess) -> None:
    await kube.create(kinds.POD, pod(NAMESPACE, "plain", IDLE))
    await _counters(kube, "plain", 60 * MIB)
    alone = dict(UsageCollector(node.data_dir.pods, CgroupLayout(), Gpus())._containers())
    figures = alone[ContainerKey(NAMESPACE, "plain", "main")]
    known = await _counters(kube, "plain", 60 * MIB)
    assert figures.working_set >= 60 * MIB
    assert known.working_set >= 0.98 * figures.working_set, "memory shared with the zygote counts"
    assert figures.cpu_seconds > 0
    assert figures.cpu_seconds < known.cpu_seconds + 15
    assert figures.periods == 0


async def test_ended_pod_has_no_usage(kube: Kube) -> None:
    await kube.create(kinds.POD, pod(NAMESPACE, "over", "pass", spec_restartPolicy="Never"))
    stored = await until(kube, NAMESPACE, "over", phase("Succeeded"))
    with pytest.raises(errors.Temporary, match="no figures of Pod default/over"):
        await usage.read(kube, stored)


async def test_unknown_node_is_a_status_error(kube: Kube) -> None:
    with pytest.raises(errors.NotFound, match='nodes "other" not found'):
        await kube.raw("/api/v1/nodes/other/proxy/metrics/cadvisor")
    with pytest.raises(errors.NotFound):
        await kube.raw("/api/v1/nodes/local/proxy/logs/")


async def test_metrics_name_the_machine(kube: Kube) -> None:
    assert " core" in await usage.machine(kube, "local")


@pytest.mark.parametrize("_", [pytest.param(None, marks=needs_kubectl)])
async def test_kubectl_and_slipway_top_show_the_same_pod(
    kube: Kube, api_server: DataDir, tmp_path: Path, _: None
) -> None:
    labelled = pod(NAMESPACE, "shown", IDLE, resources={"limits": {"cpu": "200m", "memory": "256Mi"}})
    labelled["metadata"]["labels"] = {"shown": "yes"}
    await kube.create(kinds.POD, labelled)
    await _counters(kube, "shown", 60 * MIB)
    kubectl = Kubectl(api_server.kubeconfig, tmp_path, NAMESPACE)
    header, line = kubectl("top", "pod", "-l", "shown=yes").splitlines()
    assert header.split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    name, cpu, memory = line.split()
    assert (name, cpu[-1], memory[-2:]) == ("shown", "m", "Mi")
    command = [
        sys.executable,
        "-m",
        "serving.app",
        "top",
        "pod",
        "shown",
        "--kubeconfig",
        str(api_server.kubeconfig),
    ]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    row = dict(zip(*(text.split() for text in done.stdout.splitlines()), strict=True))
    assert (row["NAME"], row["CPU-LIMIT"], row["MEMORY-LIMIT"]) == ("shown", "200m", "256Mi")
    assert abs(int(row["MEMORY"].removesuffix("Mi")) - int(memory.removesuffix("Mi"))) < 20


async def test_metrics_are_unavailable_without_the_agent(kube: Kube, node: NodeProcess) -> None:
    node.stop()
    try:
        for path in ("/api/v1/nodes/local/proxy/metrics/cadvisor", "/apis/metrics.k8s.io/v1beta1/pods"):
            with pytest.raises(errors.Unavailable, match="error trying to reach service"):
                await kube.raw(path)
    finally:
        node.start()
