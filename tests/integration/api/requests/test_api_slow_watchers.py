"""Slow watchers are disconnected without an effect on others."""

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from starlette.types import Message

from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.history import ObjectKey, ObjectVersion
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.watches import CONNECTION, Hub, Watch, WatchResponse
from serving.resources import kinds
from serving.settings import ApiSettings
from tests.objects.config_maps import MAPS, config_map, events
from tests.objects.stored_kinds import STORED_KINDS
from tests.rig.servers.api_process import ApiProcess

PATH = MAPS.format("default")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    root = tmp_path_factory.mktemp("impatient") / "data"
    server = ApiProcess(
        root, stalled_seconds=0.5, bookmark_seconds=0.2, watch_history=40, watch_queue=20
    ).start()
    yield server
    server.stop()


def sockets(server: ApiProcess) -> int:
    assert server.process is not None
    count = 0
    for path in Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            count += str(path.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def resident_bytes(server: ApiProcess) -> int:
    assert server.process is not None
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def watch_without_reading(server: ApiProcess) -> ssl.SSLSocket:
    config = yaml.safe_load(server.data_dir.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", server.settings.port))
    context = ssl.create_default_context(cafile=str(server.data_dir.tls / "ca.crt"))
    connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
    request = f"GET {PATH}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    connection.sendall(request.encode())
    return connection


def test_a_watcher_that_does_not_read_is_disconnected_and_others_continue(impatient: ApiProcess) -> None:
    with impatient.http() as client, impatient.http() as watcher:
        assert client.get("/version").status_code == 200
        reading = events(watcher, PATH, timeoutSeconds="30")
        assert client.post(PATH, json=config_map("small")).status_code == 201
        assert next(reading)["object"]["metadata"]["name"] == "small"
        before = sockets(impatient)
        stuck = watch_without_reading(impatient)
        try:
            deadline = time.monotonic() + 5
            while sockets(impatient) == before:
                assert time.monotonic() < deadline
            body = config_map("large")
            body["data"] = {"k": "v" * 900_000}
            assert client.post(PATH, json=body).status_code == 201
            for number in range(6):
                body["data"]["n"] = str(number)
                assert client.put(f"{PATH}/large", json=body).status_code == 200
            for _ in range(7):
                assert next(reading)["object"]["metadata"]["name"] == "large"
            deadline = time.monotonic() + 10
            while sockets(impatient) > before:
                assert time.monotonic() < deadline, "the connection is still open"
                time.sleep(0.05)
        finally:
            stuck.close()
            client.delete(f"{PATH}/large")


def test_a_watcher_that_falls_behind_gets_410(impatient: ApiProcess) -> None:
    with impatient.http() as client:
        start = client.get(PATH).json()["metadata"]["resourceVersion"]
        for number in range(50):
            client.post(PATH, json=config_map(f"m{number}"))
        gone = client.get(PATH, params={"watch": "1", "resourceVersion": start})
        assert gone.status_code == 410
        status = gone.json()
        assert (status["reason"], status["code"]) == ("Expired", 410)
        assert "too old resource version" in status["message"]
        listed = client.get(PATH, params={"resourceVersion": start, "resourceVersionMatch": "Exact"})
        assert listed.status_code == 410
        client.delete(PATH)


def test_bookmarks_advance_an_idle_watcher(impatient: ApiProcess) -> None:
    """A watcher of a kind without changes can resume after the history has advanced."""
    with impatient.http() as client, impatient.http() as watcher:
        start = client.get("/api/v1/secrets").json()["metadata"]["resourceVersion"]
        query = {"allowWatchBookmarks": "true", "timeoutSeconds": "20", "resourceVersion": start}
        seen = events(watcher, "/api/v1/secrets", **query)
        for number in range(60):
            client.post(PATH, json=config_map(f"m{number}"))
        newest = int(client.get("/api/v1/secrets").json()["metadata"]["resourceVersion"])
        assert newest >= int(start) + 60
        bookmark = next(seen)
        deadline = time.monotonic() + 5
        while int(bookmark["object"]["metadata"]["resourceVersion"]) < newest:
            assert bookmark["type"] == "BOOKMARK"
            assert time.monotonic() < deadline
            bookmark = next(seen)
        assert bookmark["object"]["kind"] == "Secret"
        assert set(bookmark["object"]["metadata"]) == {"resourceVersion", "creationTimestamp"}
        resumed = {"resourceVersion": str(newest), "timeoutSeconds": "1"}
        assert list(events(client, "/api/v1/secrets", **resumed)) == []
        client.delete(PATH)


def test_no_bookmarks_are_sent_when_not_requested(impatient: ApiProcess) -> None:
    with impatient.http() as client:
        start = client.get(PATH).json()["metadata"]["resourceVersion"]
        assert list(events(client, PATH, resourceVersion=start, timeoutSeconds="1")) == []


def test_a_watch_that_cannot_start_gets_an_error_status(impatient: ApiProcess) -> None:
    with impatient.http() as client:
        response = client.get(PATH, params={"watch": "1", "resourceVersion": "1"})
        assert response.headers["content-type"] == "application/json"
        assert json.loads(response.content)["kind"] == "Status"
        with pytest.raises(httpx.HTTPStatusError):
            response.raise_for_status()


def test_memory_of_large_events_is_returned_when_their_watchers_have_gone(tmp_path: Path) -> None:
    server = ApiProcess(tmp_path / "data").start()
    try:
        with server.http() as client:
            watchers = [watch_without_reading(server) for _ in range(60)]
            body = config_map("large")
            for number in range(20):
                body["data"] = {"k": str(number) + "v" * 900_000}
                method = client.put if number else client.post
                assert method(f"{PATH}/large" if number else PATH, json=body).is_success
            most = resident_bytes(server)
            for watcher in watchers:
                watcher.close()
            deadline = time.monotonic() + 10
            while most - resident_bytes(server) < 60 * 900_000:
                assert time.monotonic() < deadline, "the watchers' memory is not returned"
                time.sleep(0.05)
    finally:
        server.stop()


async def test_a_watcher_that_does_not_read_has_one_chunk_when_it_begins_far_behind(tmp_path: Path) -> None:
    store = ObjectStore(Database(tmp_path / "db", epoch=100, history=50), STORED_KINDS)
    start = store.version
    for number in range(20):
        body = config_map(f"map-{number}") | {"data": {"k": "v" * 100_000}}
        await store.submit(kinds.CONFIG_MAP, ObjectKey("default", f"map-{number}"), body).committed()
    rendered: list[int] = []
    sent: list[bytes] = []
    sends_chunk, reads = asyncio.Event(), asyncio.Event()

    def render(entry: ObjectVersion) -> bytes:
        rendered.append(entry.version)
        return entry.body

    async def send(message: Message) -> None:
        if message.get("body"):
            sends_chunk.set()
            await reads.wait()
            sent.append(message["body"])

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client does not disconnect")

    watch = Watch(kinds.CONFIG_MAP, None, None, start, seconds=0.0)
    response = WatchResponse(store, Hub(store), ApiSettings(), watch, render)
    connection = {"is_paused": lambda: False, "abort": lambda: None}
    scope = {"type": "http", "extensions": {CONNECTION: connection}}
    sending = asyncio.create_task(response(scope, receive, send))
    async with asyncio.timeout(10):
        await sends_chunk.wait()
        assert 0 < len(rendered) <= 3
        reads.set()
        await sending
    assert b"".join(sent).count(b"\n") == len(rendered) == 20
    await store.close()
