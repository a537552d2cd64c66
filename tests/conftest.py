"""Fixtures for every suite."""

import asyncio
import inspect
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.zygote import pool
from serving.kube import Kube, connect
from tests.rig import fuzzing, leaks, optional_modules
from tests.rig.servers.api_process import ApiProcess

pytest_plugins = ["tests.rig.forked_workers"]
fuzzing.register_profiles()
# A shell's background job ignores SIGINT, and so would each process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    strict = pytest.mark.filterwarnings("error")
    for item in items:
        item.add_marker(strict, append=False)  # before the marks of the test, which may except a warning


def pytest_collection_finish() -> None:
    optional_modules.check_none_is_imported()


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_by_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail a file of tests that leaves processes or file descriptors behind; set up before other fixtures."""
    session = request.session
    file, failed = leaks.FileOfTests(tmp_path_factory.getbasetemp()), session.testsfailed
    yield
    # The traceback of a failed test keeps its variables, and an interrupted test has not ended.
    if session.testsfailed == failed and session.exitstatus != pytest.ExitCode.INTERRUPTED:
        left = file.leaks()
        assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True)
def _no_task_left_by_coroutines(request: pytest.FixtureRequest) -> None:
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_no_task_left")


@pytest.fixture
async def _no_task_left() -> AsyncIterator[None]:
    """Fail a test that leaves asyncio tasks behind."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # those that are ending may end
        _, left = await asyncio.wait(left, timeout=0.1)
    assert not left, f"tasks left behind: {left}"


@pytest.fixture(scope="session")
def api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """The embedded API server of the session; tests share it, each in a namespace of its own."""
    directory = tmp_path_factory.mktemp("api")
    with leaks.shared(directory):
        server = ApiProcess(directory / "data").start()
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
