"""Logs that the agent renames or removes during a request, or that are no regular files; the API runs in this
process.
"""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.apiserver.handlers.objects import ObjectHandlers
from serving.embedded.apiserver.requests import asgi, paths
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.history import ObjectKey
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.watches import Hub
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.embedded.pod_spec.container_id import container_id
from serving.resources import kinds
from serving.settings import ApiSettings
from tests.objects.stored_kinds import STORED_KINDS

Action = Callable[[], None]


class LogServer:
    """The API with a Pod whose status names the second run of its container."""

    def __init__(self, data_dir: DataDir, resources: ObjectHandlers) -> None:
        self._data_dir, self._resources = data_dir, resources
        self._during: Action = lambda: None

    def log(self, restart: int) -> Path:
        return self._data_dir.pod_log("u", "main", restart)

    async def get_log(self, query: str, during: Action = lambda: None) -> httpx.Response:
        """Request the log; call `during` before the response is sent."""
        self._during = during
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://api", verify=False) as client:
            return await client.get(f"/api/v1/namespaces/default/pods/p/log?{query}")

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = paths.parse(STORED_KINDS, scope["path"])
        assert address is not None
        response = await self._resources.answer(asgi.AsgiRequest(scope, receive), address)
        self._during()
        await response(scope, receive, send)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LogServer]:
    store = ObjectStore(Database(tmp_path / "db", epoch=1, history=50), STORED_KINDS)
    status: dict[str, Any] = {"name": "main", "containerID": container_id("u", "main", 1), "state": {}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Failed", "containerStatuses": [status]},
    }
    await store.submit(kinds.POD, ObjectKey("default", "p"), pod).committed()
    data_dir = DataDir(tmp_path / "data")
    server = LogServer(data_dir, ObjectHandlers(ObjectWriter(store), Hub(store), ApiSettings(), data_dir))
    server.log(0).parent.mkdir(parents=True)
    for restart in (0, 1):
        server.log(restart).write_text(f"run {restart}\n")
    yield server
    await store.close()


async def test_a_response_is_complete_when_the_log_is_removed_at_its_start(server: LogServer) -> None:
    response = await server.get_log("previous=true", server.log(0).unlink)
    assert response.text == "run 0\n"


async def test_the_previous_run_is_the_last_ended_one_when_the_agent_is_ahead_of_the_status(
    server: LogServer,
) -> None:
    server.log(2).write_text("run 2\n")
    server.log(0).unlink()
    assert (await server.get_log("previous=true")).text == "run 1\n"


@pytest.mark.parametrize("query", ["", "follow=true"])
async def test_a_log_is_readable_while_it_is_rotated(server: LogServer, query: str) -> None:
    server.log(1).rename(server.log(1).with_name("1.log.1"))
    assert (await server.get_log(query)).text == "run 1\n"


OTHERS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "link": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("query", ["", "follow=true", "tailLines=1", "timestamps=true"])
@pytest.mark.parametrize("kind", OTHERS)
async def test_a_log_is_refused_when_it_is_a_file_of_another_type(
    server: LogServer, kind: str, query: str
) -> None:
    server.log(1).unlink()
    OTHERS[kind](server.log(1))
    with pytest.raises(errors.ApiError, match=r"1\.log: is not a regular file$") as raised:
        await server.get_log(query)
    assert raised.value.code == 400


@pytest.mark.parametrize("part", ["1.log.1", "1.log.times"])
@pytest.mark.parametrize("kind", OTHERS)
async def test_the_rest_of_a_log_is_read_when_a_part_is_a_file_of_another_type(
    server: LogServer, kind: str, part: str
) -> None:
    OTHERS[kind](server.log(1).with_name(part))
    assert (await server.get_log("")).text == "run 1\n"
    with pytest.raises(errors.ApiError, match="without their times"):
        await server.get_log("timestamps=true")
