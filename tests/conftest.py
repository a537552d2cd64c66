"""Fixtures for every suite."""

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from serving.data_dir import DataDir
from serving.embedded.kubelet.zygote import pool
from serving.kube import Kube, connect
from tests.rig import fuzzing
from tests.rig.api_process import ApiProcess

settings.register_profile("busy", deadline=None)  # no deadline: a busy machine is slow
settings.register_profile(fuzzing.PROFILE, deadline=None)
settings.load_profile("busy")


@pytest.fixture(scope="session")
def api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """The embedded API server of the session; tests share it, each in a namespace of its own."""
    server = ApiProcess(tmp_path_factory.mktemp("api") / "data").start()
    yield server
    server.stop()
    pool.end_all(server.data_dir.zygotes)  # zygotes outlive the agents that tests kill


@pytest.fixture(scope="session")
def api_server(api_process: ApiProcess) -> DataDir:
    """The data directory of the API server, with its kubeconfig."""
    return api_process.data_dir


@pytest.fixture
async def kube(api_server: DataDir) -> AsyncIterator[Kube]:
    """A client of the API server."""
    async with await connect(api_server.kubeconfig, component="test") as client:
        yield client
