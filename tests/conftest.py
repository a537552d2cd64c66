"""Fixtures for every suite."""

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from serving.data_dir import DataDir
from serving.embedded.kubelet.zygote import pool
from serving.kube import Kube, connect
from tests.rig import fuzzing
from tests.rig.api_process import ApiProcess

settings.register_profile("busy", deadline=None)  # an example takes as long as the machine is busy
settings.register_profile(fuzzing.PROFILE, deadline=None)
settings.load_profile("busy")


@pytest.fixture(scope="session")
def api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """The embedded API server, shared by the session: work in a namespace of your own."""
    server = ApiProcess(tmp_path_factory.mktemp("api") / "data").start()
    yield server
    server.stop()
    pool.end_all(server.data_dir.zygotes)  # as replicas do, they outlive the agents that tests kill


@pytest.fixture(scope="session")
def api_server(api_process: ApiProcess) -> DataDir:
    """Its data directory; `kubeconfig` in it reaches the server."""
    return api_process.data_dir


@pytest.fixture
async def kube(api_server: DataDir) -> AsyncIterator[Kube]:
    """A client of it."""
    async with await connect(api_server.kubeconfig, component="test") as client:
        yield client
