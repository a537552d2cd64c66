"""The node's probes reach a port of their Pod, and no other Pod's, that is closed to unmarked connections."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.pod import probe_client
from serving.embedded.pod_spec.pod_identity import PodIdentity
from tests.programs import grpc_replica
from tests.rig.machine.addresses import own
from tests.rig.machine.gateway_ports import accepts, keep_for_gateway, needs_marks
from tests.rig.servers.gateway import backend

ADDRESS, OTHER = own(87), own(88)
HTTP, GRPC = 8080, 9000
REACHES = [
    {"httpGet": {"port": HTTP, "path": "/"}},
    {"tcpSocket": {"port": HTTP}},
    {"grpc": {"port": GRPC}},
]

pytestmark = [pytest.mark.root, needs_marks]


class NodeWithFolder:
    """Of a node, what a probe needs."""

    def __init__(self, root: Path) -> None:
        self.data_dir = DataDir(root)


@pytest.fixture
def target(tmp_path: Path) -> RunningContainer:
    node: Any = NodeWithFolder(tmp_path)
    return RunningContainer(node, "uid", {"name": "main"}, PodIdentity(ADDRESS, None), 0)


@pytest.fixture(autouse=True)
async def container() -> AsyncIterator[None]:
    server = await grpc_replica.serve(f"{ADDRESS}:{GRPC}")
    async with backend(ADDRESS, HTTP), backend(OTHER, HTTP):
        for address, port in ((ADDRESS, HTTP), (ADDRESS, GRPC), (OTHER, HTTP)):
            keep_for_gateway(address, port)
            assert not accepts(address, port)
        yield
    await server.stop(None)


@pytest.mark.parametrize("action", REACHES, ids=["http", "tcp", "grpc"])
async def test_probe_reaches_the_port(target: RunningContainer, action: dict[str, Any]) -> None:
    assert (await probe_client.send(target, action, 5.0)).problem is None


async def test_health_by_grpc_is_the_servers_and_not_the_connections(target: RunningContainer) -> None:
    action = {"grpc": {"port": GRPC, "service": grpc_replica.UNHEALTHY}}
    problem = (await probe_client.send(target, action, 5.0)).problem
    assert problem == "the server says that it is not serving"


async def test_grpc_probe_of_a_port_without_a_listener_fails_at_once(target: RunningContainer) -> None:
    problem = (await probe_client.send(target, {"grpc": {"port": GRPC + 1}}, 60.0)).problem
    assert (problem or "").startswith("[Errno 111] ")


@pytest.mark.parametrize("action", REACHES[:2], ids=["http", "tcp"])
async def test_probe_of_another_pods_address_has_no_mark(
    target: RunningContainer, action: dict[str, Any]
) -> None:
    ((kind, fields),) = action.items()
    answer = await probe_client.send(target, {kind: {**fields, "host": OTHER}}, 0.5)
    assert answer.problem == "no answer within 0.5 s"
