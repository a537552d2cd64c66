"""A new namespace of the session's API server for each test, and the command line in it."""

import itertools
from collections.abc import AsyncIterator

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.resources import kinds
from tests.rig.command_line import Slipway, command_line

_NUMBERS = itertools.count()


@pytest.fixture
async def kube(api_server: DataDir) -> AsyncIterator[Kube]:
    """A client whose namespace is new."""
    namespace = f"cli-{next(_NUMBERS)}"
    async with await connect(api_server.kubeconfig, component="test") as client:
        await client.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        client.namespace = namespace
        yield client


@pytest.fixture
def slipway(kube: Kube, api_server: DataDir, capsys: pytest.CaptureFixture[str]) -> Slipway:
    return command_line(api_server.kubeconfig, kube.namespace, capsys)
