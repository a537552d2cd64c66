"""SIGKILL of the node agent and of container shims: replicas keep running, and exits are reported."""

import os
import select
import shutil
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.kubelet.shutdown import stop_everything
from serving.kube import Kube
from serving.resources import kinds
from serving.settings import DEFAULTS
from serving.system import processes
from tests.rig.servers.node_process import (
    SERVER,
    STARTS,
    NodeProcess,
    agent,
    delete_pods,
    is_ready,
    log_of,
    main_status,
    phase,
    pod,
    until,
    until_gone,
)

NAMESPACE = "default"


@pytest.fixture(scope="module", params=STARTS, autouse=True)
def node(request: pytest.FixtureRequest, api_server: DataDir) -> Iterator[NodeProcess]:
    with agent(api_server, NAMESPACE, request.param) as process:
        yield process


@pytest.fixture(autouse=True)
async def _no_pod_of_another_test(kube: Kube, node: NodeProcess) -> AsyncIterator[None]:
    """The tests share an agent, which each of them leaves running, and no Pods."""
    yield
    assert node.process is not None
    if node.process.poll() is not None:
        node.start()
    await delete_pods(kube, NAMESPACE)


def process_of(node: NodeProcess, stored: dict) -> processes.ProcessIdentity:
    run = next(PodDirectory(node.data_dir.pods / stored["metadata"]["uid"]).latest())
    identities = run.identities()
    assert identities is not None
    return identities.main


def shim_of(node: NodeProcess, stored: dict) -> processes.ProcessIdentity:
    run = next(PodDirectory(node.data_dir.pods / stored["metadata"]["uid"]).latest())
    identities = run.identities()
    assert identities is not None
    return identities.shim


async def serve(kube: Kube, name: str) -> dict:
    readiness = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    spec = pod(NAMESPACE, name, SERVER, readinessProbe=readiness, ports=[{"containerPort": 8080}])
    await kube.create(kinds.POD, spec)
    return await until(kube, NAMESPACE, name, is_ready)


async def test_replicas_keep_running_and_are_adopted_when_the_agent_is_killed(
    kube: Kube, node: NodeProcess
) -> None:
    first_pod = await serve(kube, "adopted")
    process = process_of(node, first_pod)
    for number in (signal.SIGKILL, signal.SIGTERM):
        node.stop(number)
        assert processes.is_alive(process)
        node.start()
        patched = {"metadata": {"annotations": {"again": str(number)}}}
        await kube.patch(kinds.POD, NAMESPACE, "adopted", patched)
    marker = pod(NAMESPACE, "marker", "print(1)", spec_restartPolicy="Never")
    await kube.create(kinds.POD, marker)
    await until(kube, NAMESPACE, "marker", phase("Succeeded"))  # the new agent works
    adopted_pod = await until(kube, NAMESPACE, "adopted", is_ready)
    assert processes.is_alive(process)
    assert process_of(node, adopted_pod) == process
    assert adopted_pod["status"] == first_pod["status"]
    await kube.delete(kinds.POD, NAMESPACE, "adopted")
    await until_gone(kube, NAMESPACE, "adopted")
    assert not processes.is_alive(process)


async def test_broken_record_of_a_pod_that_is_gone_does_not_stop_the_node(
    kube: Kube, node: NodeProcess
) -> None:
    node.stop(signal.SIGKILL)
    run = node.data_dir.pods / "gone" / "containers" / "main" / "0"
    run.mkdir(parents=True)
    for name in ("launch.json", "exit.json"):
        (run / name).write_text('{"of": "another version"}')
    node.start()
    await serve(kube, "beside")
    assert node.process is not None
    assert node.process.poll() is None
    shutil.rmtree(node.data_dir.pods / "gone")


async def test_exit_is_reported_when_it_happened_while_the_agent_was_down(
    kube: Kube, node: NodeProcess
) -> None:
    script = (
        "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(7))\n"
        "print('begun')\nwhile True: signal.pause()"
    )
    created = await kube.create(kinds.POD, pod(NAMESPACE, "away", script, spec_restartPolicy="Never"))
    log = node.data_dir.pod_log(created["metadata"]["uid"], "main", 0)
    stored = await until(kube, NAMESPACE, "away", lambda p: is_ready(p) and log.read_text() == "begun\n")
    process = process_of(node, stored)
    node.stop(signal.SIGKILL)
    handle = os.pidfd_open(process.pid)
    processes.send_signal(process, signal.SIGTERM)
    assert select.select([handle], [], [], 5)[0]
    os.close(handle)
    node.start()
    stored = await until(kube, NAMESPACE, "away", phase("Failed"))
    assert main_status(stored)["state"]["terminated"]["exitCode"] == 7
    assert log_of(node.data_dir, stored) == "begun\n"


async def test_killed_shim_ends_its_container_and_the_pod_starts_again(kube: Kube, node: NodeProcess) -> None:
    stored = await serve(kube, "unrecorded")
    process = process_of(node, stored)
    assert processes.send_signal(shim_of(node, stored), signal.SIGKILL)
    stored = await until(
        kube, NAMESPACE, "unrecorded", lambda p: is_ready(p) and main_status(p)["restartCount"] == 1
    )
    assert main_status(stored)["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert not processes.is_alive(process)
    await kube.delete(kinds.POD, NAMESPACE, "unrecorded")
    await until_gone(kube, NAMESPACE, "unrecorded")


async def test_containers_start_again_when_the_boot_id_has_changed(kube: Kube, node: NodeProcess) -> None:
    stored = await serve(kube, "rebooted")
    process = process_of(node, stored)
    node.stop(signal.SIGKILL)
    run = next(PodDirectory(node.data_dir.pods / stored["metadata"]["uid"]).latest())
    processes.send_signal(shim_of(node, stored), signal.SIGKILL)
    started = run.path / "started.json"
    started.write_text(started.read_text().replace(process.boot_id, "another-boot"))
    bystander = os.getpid()
    text = started.read_text().replace(str(process.pid), str(bystander))
    started.write_text(text)
    node.start()
    restarted = await until(
        kube, NAMESPACE, "rebooted", lambda p: is_ready(p) and main_status(p)["restartCount"] == 1
    )
    assert "restarted" in main_status(restarted)["lastState"]["terminated"]["message"]
    await kube.delete(kinds.POD, NAMESPACE, "rebooted")
    await until_gone(kube, NAMESPACE, "rebooted")


async def test_stop_everything_ends_all_processes_when_agent_and_api_are_down(
    kube: Kube, node: NodeProcess
) -> None:
    stored = await serve(kube, "stopped")
    process = process_of(node, stored)
    node.stop(signal.SIGKILL)
    await stop_everything(node.data_dir, DEFAULTS)
    assert not processes.is_alive(process)
    node.start()
    again = await until(
        kube,
        NAMESPACE,
        "stopped",
        lambda p: is_ready(p) and main_status(p)["containerID"] != main_status(stored)["containerID"],
    )
    assert main_status(again)["restartCount"] == 0, "a stop that was asked for is no crash"
    assert main_status(again)["lastState"]["terminated"]["reason"] == "NodeShutdown"
    await kube.delete(kinds.POD, NAMESPACE, "stopped")
    await until_gone(kube, NAMESPACE, "stopped")
