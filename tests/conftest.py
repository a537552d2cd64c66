"""Fixtures for every suite."""

from collections.abc import Iterator

import pytest

from serving.data_dir import DataDir
from serving.embedded.node import zygotes
from tests.api_process import ApiProcess


@pytest.fixture(scope="session")
def api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """The embedded API server, shared by the session: work in a namespace of your own."""
    server = ApiProcess(tmp_path_factory.mktemp("api") / "data").start()
    yield server
    server.stop()
    zygotes.end_all(server.data_dir.zygotes)  # as replicas do, they outlive the agents that tests kill


@pytest.fixture(scope="session")
def api_server(api_process: ApiProcess) -> DataDir:
    """Its data directory; `kubeconfig` in it reaches the server."""
    return api_process.data_dir
