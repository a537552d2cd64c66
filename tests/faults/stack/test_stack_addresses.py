"""The address of a custom container on the whole product: its gateway reaches it, and nobody else has it."""

import asyncio
import contextlib
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.system import processes
from serving.system.files import open_files
from tests.rig.machine import gateway_ports, kept_sockets, port_thief
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, PROGRAMS, LiveStack, predictors, until

PORT = 9000
pytestmark = [pytest.mark.slow, pytest.mark.root, gateway_ports.needs_marks]
CONTAINER = {
    "name": "predictor",
    "image": "tests/grpc",
    "command": [sys.executable, str(PROGRAMS / "grpc_replica.py")],
    "ports": [{"name": "grpc", "containerPort": PORT}],
    "readinessProbe": {"grpc": {"port": PORT}, "periodSeconds": 2},
}
CONNECT = """
import os, socket, sys
for user in map(int, sys.argv[2:]):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
try: socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error: print(type(error).__name__, flush=True)
"""


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the Inference `closed` serves with a custom container."""
    arms = [{**arm, "template": {"containers": [CONTAINER]}} for arm in predictors(a=("v-2", 1))]
    async with stacks.deployed(stack, "closed", arms, framework="custom") as client:
        await until(client, kinds.INFERENCE, "closed", stacks.settled)
        yield client


@pytest.fixture
async def replica(stack: LiveStack, kube: Kube) -> Object:
    """The Pod of the Inference, once `up` keeps its address and its port of all of IPv6."""
    (pod,) = await stacks.pods(kube, "closed")
    await kept_sockets.until_kept(stack, "node", 2)
    return pod


async def infer(stack: LiveStack) -> str:
    """Return the version that answers."""
    tensor = triton.InferInput("input", [1, 64], "FP64")
    tensor.set_data_from_numpy(np.ones((1, 64)))
    options = [("grpc.default_authority", f"closed.{NAMESPACE}.slipway.local")]
    async with triton.InferenceServerClient(stack.gateway, channel_args=options) as client:
        result = await client.infer("closed", [tensor], client_timeout=60)
    version: str = result.get_response().model_version
    return version


async def until_served(stack: LiveStack, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            assert await infer(stack) == "v-2"
        except InferenceServerException:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        else:
            return


def restarts(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


async def until_restarted(kube: Kube, before: Object) -> None:
    count = restarts(before)
    await until(
        kube, kinds.POD, before["metadata"]["name"], lambda p: restarts(p) > count and stacks.is_ready(p)
    )


async def end_node(stack: LiveStack, pods: Iterable[Object] = (), **signals: signal.Signals) -> None:
    """Signal components, by default SIGKILL to the node, kill the shims of the Pods in the same moment, and
    wait for the node's successor.
    """
    signals = signals or {"node": signal.SIGKILL}
    node = stack.component("node")
    shims = [stack.processes(pod)[0] for pod in pods]
    for name, number in signals.items():
        component = stack.component(name)
        assert component is not None
        assert processes.send_signal(component, number)
    for shim in shims:
        assert processes.send_signal(shim, signal.SIGKILL)
    deadline = time.monotonic() + 60  # with the back-off of earlier tests' restarts
    while stack.component("node") in (None, node):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_custom_container_answers_the_gateway_and_no_other_connection(
    stack: LiveStack, replica: Object
) -> None:
    assert await infer(stack) == "v-2"
    address = replica["status"]["podIP"]
    assert gateway_ports.accepts(address, PORT, marked=True)
    assert not gateway_ports.accepts(address, PORT)


@pytest.mark.parametrize(
    "signals",
    [
        {"node": signal.SIGKILL},
        {"node": signal.SIGSTOP},
        {"api": signal.SIGSTOP, "node": signal.SIGKILL},  # the successor knows no Pod until the API is back
    ],
    ids=["killed", "hung", "killed-while-the-api-hangs"],
)
async def test_nobody_else_can_bind_the_address_when_the_node_and_the_container_end_together(
    stack: LiveStack, kube: Kube, replica: Object, signals: dict[str, signal.Signals]
) -> None:
    address = replica["status"]["podIP"]
    assert port_thief.ways_to_bind(address, PORT + 1), "the test cannot fail if nobody can bind a free port"
    with port_thief.trying(address, PORT) as thief:
        await end_node(stack, [replica], **signals)
        await until_restarted(kube, replica)
        await until_served(stack)
    assert thief.bound == {}
    assert thief.rounds > 10


async def test_no_address_is_lost_when_the_node_ends_twice_and_a_pod_starts_in_between(
    stack: LiveStack, kube: Kube, replica: Object
) -> None:
    await end_node(stack)
    async with running(kube, "between") as second:
        await kept_sockets.until_kept(stack, "node", 4)
        replicas = [replica, second]
        with contextlib.ExitStack() as stealing:
            thieves = [
                stealing.enter_context(port_thief.trying(pod["status"]["podIP"], PORT)) for pod in replicas
            ]
            await end_node(stack, replicas)
            for pod in replicas:
                await until_restarted(kube, pod)
        assert [thief.bound for thief in thieves] == [{}, {}]
    await kept_sockets.until_kept(stack, "node", 2)


async def test_address_is_freed_when_its_pod_is_deleted_while_the_node_is_dead(
    stack: LiveStack, kube: Kube, replica: Object
) -> None:
    async with running(kube, "deleted") as pod:
        await kept_sockets.until_kept(stack, "node", 4)
        node = stack.component("node")
        assert node is not None
        assert processes.send_signal(node, signal.SIGSTOP)
        await kube.delete(kinds.POD, NAMESPACE, pod["metadata"]["name"], grace_seconds=0)
        await end_node(stack)
        await kept_sockets.until_kept(stack, "node", 2)


async def test_nobody_else_can_bind_the_address_when_its_pod_ends_while_the_gateway_hangs(
    stack: LiveStack, kube: Kube, replica: Object
) -> None:
    """Envoy sends requests there until the gateway has sent it the end."""
    gateway = stack.component("gateway")
    assert gateway is not None
    node = stack.component("node")
    with port_thief.trying(replica["status"]["podIP"], PORT) as thief:
        assert processes.send_signal(gateway, signal.SIGSTOP)
        try:
            await kube.delete(kinds.POD, NAMESPACE, replica["metadata"]["name"], grace_seconds=0)
            await until_gone(stack, replica)
            await asyncio.sleep(stacks.RESERVE_SECONDS / 2)
        finally:
            processes.send_signal(gateway, signal.SIGCONT)
    assert stack.component("node") == node
    assert thief.bound == {}
    await until_served(stack)


async def test_address_is_reserved_again_when_up_and_the_node_were_dead_and_a_process_had_the_port(
    stack: LiveStack, kube: Kube, replica: Object
) -> None:
    address = replica["status"]["podIP"]
    up, node = stack.component("up"), stack.component("node")
    assert up is not None
    assert node is not None
    for process in (up, node):
        assert processes.send_signal(process, signal.SIGKILL)
    with socket.socket(socket.AF_INET6) as thief:
        thief.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        while True:  # until both have ended
            with contextlib.suppress(OSError):
                thief.bind(("::", PORT))
                break
            await asyncio.sleep(0.01)
        assert stack.up is not None
        stack.up.wait(10)
        await asyncio.to_thread(stack.start)
        taken = await until_event(kube, replica, "AddressTaken")
        assert taken == f"[::]:{PORT} is taken by a process, not of this Pod"
    await kept_sockets.until_kept(stack, "node", 2)
    assert port_thief.ways_to_bind(address, PORT) == []
    await until_served(stack)


async def until_gone(stack: LiveStack, pod: Object) -> None:
    """Wait until the processes of a Pod have ended, and with them its listening socket."""
    deadline = time.monotonic() + 30
    while gateway_ports.accepts(pod["status"]["podIP"], PORT, marked=True):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def until_event(kube: Kube, pod: Object, reason: str) -> str:
    """Return the message of the Pod's first Event with this reason."""
    deadline = time.monotonic() + 30
    while True:
        events = (await kube.list(kinds.EVENT_V1, NAMESPACE)).items
        for event in events:
            if event["reason"] == reason and event["involvedObject"]["uid"] == pod["metadata"]["uid"]:
                return str(event["message"])
        assert time.monotonic() < deadline, [event["message"] for event in events]
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def running(kube: Kube, name: str) -> AsyncIterator[Object]:
    """Yield a ready Pod that listens at PORT; delete it afterwards."""
    container = {
        "name": "main",
        "image": "tests/http",
        "command": [sys.executable, "-m", "http.server", str(PORT)],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    await kube.create(kinds.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        yield await until(kube, kinds.POD, name, stacks.is_ready)
    finally:
        with contextlib.suppress(errors.NotFound):
            await kube.delete(kinds.POD, NAMESPACE, name)


async def output(command: Sequence[str]) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode()


async def test_holders_of_sockets_may_open_more_files_than_the_shell_of_up(stack: LiveStack) -> None:
    node = processes.read_identity(stack.data_dir.identity("node"))
    assert stack.up is not None
    assert node is not None
    for pid in (stack.up.pid, node[0].pid):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert soft == min(hard, open_files.MOST) > stacks.SHELL_FILES


async def test_sockets_are_passed_to_no_other_user_and_to_no_container(stack: LiveStack, kube: Kube) -> None:
    path = str(stack.data_dir.liveness("node"))
    connect = [sys.executable, "-c", CONNECT, path]
    assert await output(connect) == ""
    assert await output([*connect, str(port_thief.USER)]) == "PermissionError\n"
    container = {"name": "main", "image": "tests/connect", "command": connect}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": "connects", "namespace": NAMESPACE}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    await kube.create(kinds.JOB, job)
    await until(kube, kinds.JOB, "connects", lambda j: (j.get("status") or {}).get("succeeded") == 1)
    (pod,) = (await kube.list(kinds.POD, NAMESPACE, labels="job-name=connects")).items
    log = stack.data_dir.pod_log(pod["metadata"]["uid"], "main", 0)
    assert log.read_text().endswith(("FileNotFoundError\n", "PermissionError\n"))
