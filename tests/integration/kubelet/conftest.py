"""A node agent for each file of tests and each way to start a container, and a client."""

from collections.abc import AsyncIterator, Iterator

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube, connect
from tests.rig.servers.node_process import STARTS, NodeProcess, agent


@pytest.fixture(scope="module", params=STARTS)
def node(request: pytest.FixtureRequest, api_server: DataDir) -> Iterator[NodeProcess]:
    with agent(api_server, "default", request.param) as process:
        yield process


@pytest.fixture
async def kube(api_server: DataDir, node: NodeProcess) -> AsyncIterator[Kube]:
    async with await connect(api_server.kubeconfig, component="test") as client:
        yield client
