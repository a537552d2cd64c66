"""Replicas forked from a zygote are like new processes, and no start waits longer than its imports take."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.kubelet.resources.cgroup_limits import limit_writes
from serving.embedded.kubelet.resources.cgroups import PODS_CPU_WEIGHT, SPARES, TOP, detect
from serving.embedded.kubelet.zygote.eligibility import ZygoteKey
from serving.embedded.kubelet.zygote.pool import name_of
from serving.embedded.pod_spec.resource_limits import ContainerLimits
from serving.kube import Kube
from serving.resources import kinds, names
from serving.system import processes
from serving.system.isolation.cgroup_layout import cpu_weight_writes
from tests.rig.servers.node_process import (
    IMPORT_SECONDS,
    PYTHON,
    SCRIPT,
    SLOW,
    NodeProcess,
    agent,
    forked,
    is_ready,
    keeper,
    log_of,
    main_status,
    pod,
    until,
    until_gone,
    until_zygote,
    zygote_of,
)

NAMESPACE = "default"
MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

PORTRAIT = """
import gc, json, os, random, signal, sys, threading
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "cmdline": open("/proc/self/cmdline").read()[:60],
    "argv": sys.argv[1:2], "threads": threading.active_count(), "tasks": len(os.listdir("/proc/self/task")),
    "gc": gc.isenabled(), "random": random.random(), "umask": os.umask(0o22), "cwd": os.getcwd(),
    "blocked": int(status["SigBlk"], 16), "caught": int(status["SigCgt"], 16),
    "ignored": int(status["SigIgn"], 16),
    "main": sys.modules["__main__"].__name__, "session": os.getsid(0) == os.getpid(),
    "environment": sorted(os.environ),
}))
import time; time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def node(api_server: DataDir) -> Iterator[NodeProcess]:
    with agent(api_server, NAMESPACE, "forked") as process:
        yield process


async def start(kube: Kube, name: str, script: str = "import time; time.sleep(60)", **spec: object) -> dict:
    annotations = spec.pop("annotations", {})
    body = pod(NAMESPACE, name, script, **spec)
    body["metadata"]["annotations"] = annotations
    await kube.create(kinds.POD, body)
    return await until(kube, NAMESPACE, name, is_ready)


async def portrait(kube: Kube, node: NodeProcess, name: str, **spec: object) -> dict:
    stored = await start(kube, name, PORTRAIT, **spec)
    deadline = time.monotonic() + 10
    while not (text := log_of(node.data_dir, stored)).endswith("\n"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return json.loads(text) | {"forked": forked(node.data_dir, stored)}


async def test_forked_container_is_like_a_new_process(kube: Kube, node: NodeProcess) -> None:
    first, second = [await portrait(kube, node, f"portrait-{n}") for n in (1, 2)]
    new = await portrait(kube, node, "new", annotations={names.ZYGOTE_ANNOTATION: "disabled"})
    assert (first.pop("forked"), second.pop("forked"), new.pop("forked")) == (True, True, False)
    assert len({p.pop("random") for p in (first, second, new)}) == 3
    del new["main"], second["main"]
    assert first.pop("main") == "tests.programs.script_runtime"
    assert first == second
    assert first["descriptors"] == new["descriptors"] == ["0", "1", "2", "3"]  # 3 lists them
    assert first == new


@pytest.mark.parametrize(
    ("reason", "spec"),
    [
        ("python", {"image": PYTHON}),
        ("disabled", {"annotations": {names.ZYGOTE_ANNOTATION: "disabled"}}),
        ("environment", {"env": [{"name": "PYTHONUNBUFFERED", "value": "1"}]}),
        ("probe", {"readinessProbe": {"exec": {"command": ["true"]}}}),
    ],
)
async def test_container_that_cannot_be_forked_is_executed(
    kube: Kube, node: NodeProcess, reason: str, spec: dict
) -> None:
    assert not forked(node.data_dir, await start(kube, f"ordinary-{reason}", **spec))


@pytest.mark.root
@needs_root
async def test_cgroup_of_a_forked_container_is_limited_and_removed_with_it(
    kube: Kube, node: NodeProcess
) -> None:
    stored = await start(kube, "limited", resources={"limits": {"memory": "128Mi", "cpu": "500m"}})
    assert forked(node.data_dir, stored)
    cgroups = detect()
    (process,) = [
        run.identities().main for run in PodDirectory(node.data_dir.pods / stored["metadata"]["uid"]).latest()
    ]
    lines = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()  # noqa: ASYNC240 fast
    paths = {Path(line.split(":", 2)[2]) for line in lines if "/slipway/" in line}
    assert len(paths) == 1
    assert next(iter(paths)).parent.name == SPARES, (
        "it has joined another at its start, which takes 10 to 20 ms"
    )
    written = dict(
        limit_writes(cgroups.layout, str(next(iter(paths))).lstrip("/"), ContainerLimits(Decimal("0.5"), 0))
    )
    cores = len(os.sched_getaffinity(0))
    for group, weight in ((TOP, PODS_CPU_WEIGHT * cores), (f"{TOP}/{SPARES}", cores)):
        weights = cpu_weight_writes(cgroups.layout, group, weight)
        assert [(file, Path(file).read_text().strip()) for file, _ in weights] == weights  # noqa: ASYNC240
    limits = [file for file in written if "memory.max" in file or "memory.limit" in file]
    limit = int(Path(limits[0]).read_text())  # noqa: ASYNC240 as above
    assert (128 - 60) * MIB < limit < 128 * MIB
    await kube.delete(kinds.POD, NAMESPACE, "limited")
    await until_gone(kube, NAMESPACE, "limited")
    deadline = time.monotonic() + 5
    while any(Path(file).exists() for file in written):  # noqa: ASYNC240 fast
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_replicas_keep_running_and_the_zygote_is_replaced_when_it_is_killed(
    kube: Kube, node: NodeProcess
) -> None:
    before = await start(kube, "survives")
    zygote = await until_zygote(node.data_dir, NAMESPACE)
    assert processes.send_signal(zygote, signal.SIGKILL)
    stored = await start(kube, "meanwhile")  # forked or executed, without a delay
    assert is_ready(stored)
    await until_zygote(node.data_dir, NAMESPACE, other_than=zygote)
    assert forked(node.data_dir, await start(kube, "again"))
    after = await kube.get(kinds.POD, NAMESPACE, "survives")
    assert main_status(after)["containerID"] == main_status(before)["containerID"]
    assert main_status(after)["state"].get("running")


async def test_zygote_that_hangs_delays_no_start_and_is_replaced(kube: Kube, node: NodeProcess) -> None:
    zygote = await until_zygote(node.data_dir, NAMESPACE)
    processes.send_signal(zygote, signal.SIGSTOP)
    await start(kube, "spare")  # may take the spare that was forked earlier
    stored = await start(kube, "hurried")
    assert not forked(node.data_dir, stored)
    events = (
        await kube.list(kinds.EVENT_V1, NAMESPACE, fields=f"involvedObject.uid={stored['metadata']['uid']}")
    ).items
    deadline = time.monotonic() + 5
    while not any(e["reason"] == "NotForked" for e in events):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
        events = (await kube.list(kinds.EVENT_V1, NAMESPACE)).items
    await until_zygote(node.data_dir, NAMESPACE, other_than=zygote)
    assert not processes.is_alive(zygote)


@contextlib.asynccontextmanager
async def importing_zygote(kube: Kube, node: NodeProcess) -> AsyncIterator[processes.ProcessIdentity]:
    """Keep a zygote of `SLOW`, which has just begun to import."""
    await kube.create(kinds.DEPLOYMENT, keeper(NAMESPACE, "slow", SLOW))
    path = node.data_dir.zygotes / f"{name_of(ZygoteKey(NAMESPACE, SLOW))}.json"
    deadline = time.monotonic() + 10
    while (record := processes.read_identity(path)) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    yield record[0]
    await kube.delete(kinds.DEPLOYMENT, NAMESPACE, "slow")
    deadline = time.monotonic() + 10  # the block has used that of the beginning
    while path.exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_start_waits_for_a_zygote_that_imports(kube: Kube, node: NodeProcess) -> None:
    script = "from tests.rig.servers.node_process import SERVER; exec(SERVER)"
    readiness = {"httpGet": {"path": "/", "port": 8080}}
    async with importing_zygote(kube, node):
        stored = await start(
            kube, "patient", script, image=SLOW, readinessProbe=readiness, ports=[{"containerPort": 8080}]
        )
    assert forked(node.data_dir, stored)
    started = next(c for c in stored["status"]["conditions"] if c["type"] == names.STARTED_CONDITION)
    phases = json.loads(started["message"])
    assert started["reason"] == "Zygote"
    assert phases["import"] > phases["spawn"]


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
async def test_container_is_executed_when_the_zygote_hangs_or_dies_while_it_imports(
    kube: Kube, node: NodeProcess, sent: signal.Signals
) -> None:
    async with importing_zygote(kube, node) as zygote:
        processes.send_signal(zygote, signal.SIGSTOP)
        creation = asyncio.create_task(start(kube, f"left-{sent.name.lower()}", image=SLOW))
        await asyncio.sleep(0.3)
        assert not creation.done()
        begun = time.monotonic()
        processes.send_signal(zygote, sent)
        assert not forked(node.data_dir, await creation)
        assert (time.monotonic() - begun > IMPORT_SECONDS / 2) == (sent == signal.SIGSTOP)


async def test_pod_that_is_deleted_does_not_wait_for_its_zygote(kube: Kube, node: NodeProcess) -> None:
    async with importing_zygote(kube, node) as zygote:
        processes.send_signal(zygote, signal.SIGSTOP)
        stored = await kube.create(kinds.POD, pod(NAMESPACE, "withdrawn", "print(1)", image=SLOW))
        path = node.data_dir.pods / stored["metadata"]["uid"]
        deadline = time.monotonic() + 5
        while not path.exists():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        await kube.delete(kinds.POD, NAMESPACE, "withdrawn")
        await until_gone(kube, NAMESPACE, "withdrawn")
        assert time.monotonic() - begun < IMPORT_SECONDS / 2
        processes.send_signal(zygote, signal.SIGKILL)


async def test_restarted_agent_adopts_the_zygote(kube: Kube, node: NodeProcess) -> None:
    zygote = await until_zygote(node.data_dir, NAMESPACE)
    node.stop(signal.SIGKILL)
    node.start()
    assert forked(node.data_dir, await start(kube, "adopted-zygote"))
    assert zygote_of(node.data_dir, NAMESPACE) == zygote


async def test_phases_of_a_forked_start_are_reported_and_add_up(kube: Kube, node: NodeProcess) -> None:
    script = "from tests.rig.servers.node_process import SERVER; exec(SERVER)"
    readiness = {"httpGet": {"path": "/", "port": 8080}}
    stored = await start(kube, "timed", script, readinessProbe=readiness, ports=[{"containerPort": 8080}])
    started = next(c for c in stored["status"]["conditions"] if c["type"] == names.STARTED_CONDITION)
    phases = json.loads(started["message"])
    assert started["reason"] == "Zygote"
    total = phases.pop("ready") - phases.pop("seen")
    assert 0 < total < 15
    assert sum(phases.values()) / 1000 == pytest.approx(total, rel=0.02)
    port = json.loads(node.data_dir.metrics("node").read_bytes())["port"]
    async with httpx.AsyncClient(verify=False) as client:
        metrics = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    for name in phases:
        labels = f'inference="",kind="zygote",namespace="default",phase="{name}",predictor=""'
        assert f"slipway_start_phase_seconds_count{{{labels}}}" in metrics


HOLDS = """
import sys, time
held = bytearray({mib} << 20)
print("held", flush=True)
time.sleep(0.2)
"""


@pytest.mark.root
@needs_root
async def test_memory_limit_includes_inherited_pages_when_forked(kube: Kube, node: NodeProcess) -> None:
    """A limit allows the same memory, within a few MiB, to forked and to new processes."""
    most = {}
    for start_method, annotations in (("forked", {}), ("new", {names.ZYGOTE_ANNOTATION: "disabled"})):
        for mib in (40, 44, 48, 52, 56, 60, 64):
            name = f"holds-{start_method}-{mib}"
            body = pod(
                NAMESPACE,
                name,
                HOLDS.format(mib=mib),
                spec_restartPolicy="Never",
                resources={"limits": {"memory": "64Mi"}},
            )
            body["metadata"]["annotations"] = annotations
            await kube.create(kinds.POD, body)
            stored = await until(
                kube, NAMESPACE, name, lambda p: p["status"].get("phase") in ("Succeeded", "Failed")
            )
            if stored["status"]["phase"] == "Failed":
                assert main_status(stored)["state"]["terminated"]["reason"] == "OOMKilled"
                break
            most[start_method] = mib
    assert 40 <= most["forked"] < 64
    assert abs(most["forked"] - most["new"]) <= 8


@pytest.mark.root
@needs_root
async def test_container_is_not_forked_when_its_limit_is_below_the_inherited_pages(
    kube: Kube, node: NodeProcess
) -> None:
    await kube.create(
        kinds.POD,
        pod(
            NAMESPACE, "tiny", "print(1)", spec_restartPolicy="Never", resources={"limits": {"memory": "6Mi"}}
        ),
    )
    await until(kube, NAMESPACE, "tiny", lambda p: p["status"].get("phase") in ("Succeeded", "Failed"))
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        events = (await kube.list(kinds.EVENT_V1, NAMESPACE)).items
        messages = [
            e["message"]
            for e in events
            if e["reason"] == "NotForked" and e["involvedObject"]["name"] == "tiny"
        ]
        if messages:
            break
        await asyncio.sleep(0.05)
    assert "memory limit 6291456 is not above the" in messages[0]


async def test_zygote_is_retried_and_pods_start_when_it_cannot_be_started(
    kube: Kube, node: NodeProcess
) -> None:
    image = "slipway.dev/runtimes/sklearn"
    name = name_of(ZygoteKey(NAMESPACE, image))
    obstacle = node.data_dir.zygotes / f"{name}.log"
    obstacle.mkdir()
    unlucky = keeper(NAMESPACE)
    unlucky["metadata"]["name"] = "unlucky"
    unlucky["spec"]["template"]["spec"]["containers"][0]["image"] = image
    await kube.create(kinds.DEPLOYMENT, unlucky)
    deadline = time.monotonic() + 10
    while f"the zygote of {image} in {NAMESPACE} could not be started" not in node.log.read_text():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert forked(node.data_dir, await start(kube, "lucky"))
    obstacle.rmdir()
    while processes.read_identity(node.data_dir.zygotes / f"{name}.json") is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await kube.delete(kinds.DEPLOYMENT, NAMESPACE, "unlucky")


async def test_zygote_ends_with_the_last_deployment_that_needs_it(kube: Kube, node: NodeProcess) -> None:
    zygote = await until_zygote(node.data_dir, NAMESPACE)
    stored = await start(kube, "outlives-zygote")
    await kube.delete(kinds.DEPLOYMENT, NAMESPACE, "keeper")
    deadline = time.monotonic() + 10
    name = name_of(ZygoteKey(NAMESPACE, SCRIPT))
    while processes.is_alive(zygote) or list(node.data_dir.zygotes.glob(f"{name}*")):
        assert time.monotonic() < deadline, list(node.data_dir.zygotes.iterdir())
        await asyncio.sleep(0.02)
    assert forked(node.data_dir, stored)
    assert main_status(await kube.get(kinds.POD, NAMESPACE, "outlives-zygote"))["state"].get("running")
