"""What the activator does with requests, over real sockets: holds, releases, retries, refuses and forgets them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving.router.activator.forwarding import Backend, Listener, RequestObserver
from serving.router.activator.request_queue import Budget, Refusal
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings
from tests.rig.addresses import own
from tests.rig.convergence import until
from tests.rig.gateway import backend as replica

PORT = 8080
FIRST, SECOND, ABSENT = (Endpoint(own(n), PORT) for n in (60, 61, 62))


class World:
    """One activator's backends, each with its socket, and clients of them."""

    def __init__(self, root: Path, clients: aiohttp.ClientSession, **settings: Any) -> None:
        self.settings = replace(ActivatorSettings(), retry_seconds=0.01, **settings)
        self.root = root
        self.clients = clients
        self.budget = Budget()
        self.events: list[str] = []
        self.cold: list[float] = []
        """-1 for each request that no replica was ready for; then the seconds that it waited."""
        self.listeners: list[Listener] = []

    async def backend(self, name: str = "default/digits-a/8080") -> Backend:
        observer = RequestObserver(
            queue_changed=lambda found: self.events.append(f"{len(found.queue)} wait"),
            woken=lambda _backend, to, _since: self.events.append(f"woken {to.address}"),
            answered=lambda _seconds: self.events.append("answered"),
            refused=self.events.append,
            held=lambda _backend: self.cold.append(-1.0),
            released=lambda _backend, seconds: self.cold.append(seconds),
        )
        found = Backend(name, self.settings, self.budget, self.clients, observer)
        self.listeners.append(Listener(found, self.root / str(len(self.listeners)), self.settings))
        await self.listeners[-1].open()
        return found

    def ask(self, number: int = 0, **more: Any) -> asyncio.Task[tuple[int, dict[str, str], Any]]:
        return asyncio.create_task(self._ask(number, **more))

    async def _ask(
        self, number: int, path: str = "/v2/models/m/infer", **more: Any
    ) -> tuple[int, dict[str, str], Any]:
        connector = aiohttp.UnixConnector(str(self.root / str(number)))
        url = f"http://digits{path}"
        async with aiohttp.ClientSession(connector=connector) as session, session.post(url, **more) as answer:
            return answer.status, dict(answer.headers), await answer.json(content_type=None)

    async def until_waiting(self, found: Backend, count: int) -> None:
        await until(lambda: len(found.queue) == count)


@contextlib.asynccontextmanager
async def world(root: Path, **settings: Any) -> AsyncIterator[World]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as clients:
        found = World(root, clients, **settings)
        try:
            yield found
        finally:
            await asyncio.gather(*(listener.close() for listener in found.listeners))


async def test_requests_wait_and_are_answered_by_the_first_replica_with_all_that_they_said(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        backend = await here.backend()
        headers = {
            "x-user": "u",
            "connection": "x-hop",
            "x-hop": "1",
            "te": "trailers",
            "content-encoding": "gzip",
        }
        asked = [here.ask(data=b"body", headers=headers, path="/v2/a%2Fb?q=%20&r=") for _ in range(3)]
        await here.until_waiting(backend, 3)
        assert here.budget.bytes == 12
        async with replica(FIRST.address, PORT, name="one"):
            backend.set_replicas([FIRST])
            for status, _, said in await asyncio.gather(*asked):
                assert (status, said["path"]) == (200, "/v2/a%2Fb?q=%20&r=")
                assert said["headers"]["host"] == "digits"
                assert (said["headers"]["x-user"], said["headers"]["content-encoding"]) == ("u", "gzip")
                assert said["headers"]["content-length"] == "4"
                assert said["headers"].keys().isdisjoint({"x-hop", "te"})
        assert (here.budget.count, here.budget.bytes) == (0, 0)
        assert here.events.count("answered") == 3
        assert here.events.count(f"woken {FIRST.address}") == 1


async def test_a_replica_gets_no_more_than_its_permits_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, permits=2) as here:
        backend = await here.backend()
        asked = [here.ask() for _ in range(8)]
        await here.until_waiting(backend, 8)
        most = 0
        async with replica(FIRST.address, PORT, seconds=0.02) as seen:
            backend.set_replicas([FIRST])
            while not all(task.done() for task in asked):
                most = max(most, seen["active"])
                await asyncio.sleep(0.002)
        assert {task.result()[0] for task in asked} == {200}
        assert most == 2


async def test_an_answer_is_streamed_as_it_comes_and_frees_its_place_when_it_begins(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: 1\r\nx-a: 2\r\n\r\n5\r\nfirst\r\n"
        )
        await go_on.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    async with world(tmp_path, permits=1) as here, await asyncio.start_server(stream, FIRST.address, PORT):
        (backend := await here.backend()).set_replicas([FIRST])
        connector = aiohttp.UnixConnector(str(tmp_path / "0"))
        async with aiohttp.ClientSession(connector=connector) as session:
            answers = [await session.get("http://digits/stream") for _ in range(2)]
            assert [await answer.content.readany() for answer in answers] == [b"first", b"first"]
            assert answers[0].headers.getall("x-a") == ["1", "2"]
            assert len(backend.queue) == here.budget.count == 0
            go_on.set()
            assert [await answer.content.read() for answer in answers] == [b"last", b"last"]


async def test_one_that_cannot_be_handed_over_is_tried_elsewhere_and_again(tmp_path: Path) -> None:
    async with world(tmp_path, permits=1) as here:
        backend = await here.backend()
        backend.set_replicas([ABSENT])
        asked = [here.ask(data=b"x") for _ in range(3)]
        await here.until_waiting(backend, 3)
        async with replica(SECOND.address, PORT, name="two"):
            backend.set_replicas([ABSENT, SECOND])
            assert {(status, said["name"]) for status, _, said in await asyncio.gather(*asked)} == {
                (200, "two")
            }


async def test_a_replica_that_takes_requests_and_answers_none_is_asked_a_few_times_only(
    tmp_path: Path,
) -> None:
    taken = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with world(tmp_path, attempts=3) as here, await asyncio.start_server(hang_up, FIRST.address, PORT):
        (await here.backend()).set_replicas([FIRST])
        status, _, said = await here.ask(data=b"x")
    assert (status, said["reason"], len(taken)) == (502, "ReplicaFailed", 3)
    assert here.budget.count == 0


async def test_a_client_that_hangs_up_is_forgotten_and_its_request_never_sent(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        backend = await here.backend()
        leaving, staying = here.ask(data=b"leaving"), here.ask(data=b"staying")
        await here.until_waiting(backend, 2)
        leaving.cancel()
        await here.until_waiting(backend, 1)
        assert here.budget.bytes == len("staying")
        async with replica(FIRST.address, PORT) as seen:
            backend.set_replicas([FIRST])
            assert (await staying)[0] == 200
            assert seen["requests"] == 1


@pytest.mark.parametrize(
    ("bounds", "body", "reason", "status"),
    [
        ({"held_per_backend": 2}, b"", "TooManyWaiting", 503),
        ({"held": 2}, b"", "TooManyWaiting", 503),
        ({"bytes_per_backend": 250}, b"x" * 100, "TooManyBytesWaiting", 503),
        ({"bytes": 250}, b"x" * 100, "TooManyBytesWaiting", 503),
    ],
    ids=["count", "count-of-all", "bytes", "bytes-of-all"],
)
async def test_what_is_beyond_a_bound_is_refused_with_the_reason_and_the_others_are_not(
    tmp_path: Path, bounds: dict[str, int], body: bytes, reason: str, status: int
) -> None:
    async with world(tmp_path, **bounds) as here:
        backend = await here.backend()
        asked = [here.ask(data=body) for _ in range(2)]
        await here.until_waiting(backend, 2)
        await until(lambda: here.budget.bytes == 2 * len(body))
        refused, headers, said = await here.ask(data=body)
        assert (refused, said["reason"]) == (status, reason)
        assert "default/digits-a/8080" in said["error"]
        assert headers["Retry-After"] == str(here.settings.retry_after_seconds)
        async with replica(FIRST.address, PORT):
            backend.set_replicas([FIRST])
            assert {answer[0] for answer in await asyncio.gather(*asked)} == {200}
        assert reason in here.events


async def test_a_body_that_is_too_large_is_refused_for_good(tmp_path: Path) -> None:
    async with world(tmp_path, body_bytes=1000) as here:
        await here.backend()
        status, headers, said = await here.ask(data=b"x" * 1001)
    assert (status, said["reason"]) == (413, "BodyTooLarge")
    assert "Retry-After" not in headers


async def test_a_request_that_waited_too_long_is_told_why(tmp_path: Path) -> None:
    async with world(tmp_path, deadline_seconds=0.05) as here:
        await here.backend()
        status, headers, said = await here.ask()
    assert (status, said["reason"]) == (503, "NoReplicaInTime")
    assert "Retry-After" in headers
    assert here.budget.count == 0


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"])
async def test_a_slow_answer_has_no_deadline_once_a_replica_works_on_it(first: bytes, tmp_path: Path) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        await asyncio.sleep(0.3)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".removeprefix(first))

    async with (
        world(tmp_path, deadline_seconds=0.1) as here,
        await asyncio.start_server(slow, FIRST.address, PORT),
    ):
        (await here.backend()).set_replicas([FIRST])
        assert (await here.ask())[0] == 200


async def test_a_replica_that_takes_no_connection_is_tried_until_the_deadline(tmp_path: Path) -> None:
    async with world(tmp_path, deadline_seconds=0.2) as here:
        (await here.backend()).set_replicas([FIRST])
        status, _, said = await here.ask()
    assert (status, said["reason"]) == (503, "NoReplicaInTime")


async def test_requests_of_a_backend_that_goes_wait_on_at_its_successor_or_are_told(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        old, new = await here.backend("default/old/8080"), await here.backend("default/new/8080")
        moving = here.ask(data=b"x")
        await here.until_waiting(old, 1)
        old.end(new)
        await here.until_waiting(new, 1)
        late = here.ask(data=b"x")
        await here.until_waiting(new, 2)
        async with replica(FIRST.address, PORT):
            new.set_replicas([FIRST])
            assert [(await task)[0] for task in (moving, late)] == [200, 200]
        new.set_replicas([])
        told = here.ask(1)
        await here.until_waiting(new, 1)
        new.end(None, Refusal("BackendGone", "gone"))
        status, _, said = await told
        assert (status, said["reason"]) == (503, "BackendGone")


async def test_a_request_that_met_no_replica_is_counted_once_wherever_it_waits(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        old, new = await here.backend("old"), await here.backend("new")
        asked = here.ask()
        await here.until_waiting(old, 1)
        assert here.cold == [-1]
        old.end(new)
        await here.until_waiting(new, 1)
        async with replica(FIRST.address, PORT):
            new.set_replicas([FIRST])
            assert (await asked)[0] == 200
            assert (await here.ask(1))[0] == 200
    assert here.cold[0] == -1
    assert here.cold[1] > 0
    assert len(here.cold) == 2


async def test_a_backend_that_is_full_holds_up_no_other(tmp_path: Path) -> None:
    async with world(tmp_path, held_per_backend=1) as here, replica(FIRST.address, PORT):
        full, other = await here.backend("default/full/8080"), await here.backend("default/other/8080")
        waiting = here.ask()
        await here.until_waiting(full, 1)
        other.set_replicas([FIRST])
        assert (await here.ask(1))[0] == 200
        assert (await here.ask(0))[0] == 503
        waiting.cancel()
