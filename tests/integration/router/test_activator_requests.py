"""The activator holds, releases, retries, refuses and drops requests, over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from serving.router.activator import held_backend
from serving.router.activator.forwarding import BackendListener
from serving.router.activator.held_backend import HeldBackend, RequestObserver
from serving.router.activator.request_queue import QueueTotals, Refusal
from serving.router.plan.policy import RetryPolicy
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings
from tests.rig.control_plane.convergence import until
from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.gateway import backend as replica

PORT = 8080
FIRST, SECOND, ABSENT = (Endpoint(own(n), PORT) for n in (60, 61, 62))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_backend, "RETRY_SECONDS", 0.01)


class BackendsRig:
    """One activator's backends, each with its socket, and clients of them."""

    def __init__(self, root: Path, clients: aiohttp.ClientSession, **settings: Any) -> None:
        self.settings = replace(ActivatorSettings(), **settings)
        self.root = root
        self.clients = clients
        self.totals = QueueTotals()
        self.events: list[str] = []
        self.cold: list[float] = []
        """-1 for each request without a ready replica, and the seconds that it waited."""
        self.listeners: list[BackendListener] = []

    async def backend(self, name: str = "default/digits-a/8080") -> HeldBackend:
        observer = RequestObserver(
            queue_changed=lambda new_backend: self.events.append(f"{len(new_backend.queue)} wait"),
            woken=lambda _backend, to, _since: self.events.append(f"woken {to.address}"),
            answered=lambda _seconds: self.events.append("answered"),
            refused=self.events.append,
            held=lambda _backend: self.cold.append(-1.0),
            released=lambda _backend, seconds: self.cold.append(seconds),
        )
        new_backend = HeldBackend(name, self.settings, self.totals, observer)
        path = self.root / str(len(self.listeners))
        self.listeners.append(BackendListener(new_backend, path, self.settings, self.clients))
        await self.listeners[-1].open()
        return new_backend

    def ask(self, number: int = 0, **options: Any) -> asyncio.Task[tuple[int, dict[str, str], Any]]:
        return asyncio.create_task(self._ask(number, **options))

    async def _ask(
        self, number: int, path: str = "/v2/models/m/infer", method: str = "POST", **options: Any
    ) -> tuple[int, dict[str, str], Any]:
        connector = aiohttp.UnixConnector(str(self.root / str(number)))
        url = f"http://digits{path}"
        async with (
            aiohttp.ClientSession(connector=connector, max_field_size=65_536) as session,
            session.request(method, url, **options) as response,
        ):
            return response.status, dict(response.headers), await response.json(content_type=None)

    async def until_waiting(self, backend: HeldBackend, count: int) -> None:
        await until(lambda: len(backend.queue) == count)


@contextlib.asynccontextmanager
async def backends_rig(root: Path, **settings: Any) -> AsyncIterator[BackendsRig]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as clients:
        rig = BackendsRig(root, clients, **settings)
        try:
            yield rig
        finally:
            await asyncio.gather(*(listener.close() for listener in rig.listeners))


async def test_held_requests_reach_the_first_replica_with_path_headers_and_body(
    tmp_path: Path,
) -> None:
    async with backends_rig(tmp_path) as rig:
        backend = await rig.backend()
        headers = {
            "x-user": "u",
            "connection": "x-hop",
            "x-hop": "1",
            "te": "trailers",
            "content-encoding": "gzip",
        }
        requests = [rig.ask(data=b"body", headers=headers, path="/v2/a%2Fb?q=%20&r=") for _ in range(3)]
        await rig.until_waiting(backend, 3)
        assert rig.totals.bytes == 12
        async with replica(FIRST.address, PORT, name="one"):
            backend.set_replicas([FIRST])
            for status, _, body in await asyncio.gather(*requests):
                assert (status, body["path"]) == (200, "/v2/a%2Fb?q=%20&r=")
                assert body["headers"]["host"] == "digits"
                assert (body["headers"]["x-user"], body["headers"]["content-encoding"]) == ("u", "gzip")
                assert body["headers"]["content-length"] == "4"
                assert body["headers"].keys().isdisjoint({"x-hop", "te"})
        assert (rig.totals.count, rig.totals.bytes) == (0, 0)
        assert rig.events.count("answered") == 3
        assert rig.events.count(f"woken {FIRST.address}") == 1


async def test_request_with_a_header_that_would_be_lost_is_refused_when_it_is_not_utf_8(
    tmp_path: Path,
) -> None:
    async with backends_rig(tmp_path) as rig, replica(FIRST.address, PORT) as counts:
        (await rig.backend()).set_replicas([FIRST])
        reader, writer = await asyncio.open_unix_connection(tmp_path / "0")
        writer.write(b"GET / HTTP/1.1\r\nhost: digits\r\nx-a: \xe9\r\nconnection: close\r\n\r\n")
        head, body = (await reader.read()).split(b"\r\n\r\n", 1)
        writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    error = "default/digits-a/8080: the header x-a is not UTF-8, and cannot be forwarded"
    assert orjson.loads(body) == {"error": error, "reason": "RequestNotUtf8"}
    assert (counts["requests"], rig.events[-1]) == (0, "RequestNotUtf8")


async def test_utf_8_in_headers_is_forwarded_in_both_directions(tmp_path: Path) -> None:
    received = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-b: Zo\xeb\r\n\r\n{}".encode())

    async with backends_rig(tmp_path) as rig, tcp_server(answer, FIRST.address, PORT):
        (await rig.backend()).set_replicas([FIRST])
        status, headers, _ = await rig.ask(headers={"x-a": "Zo\xeb"})
    assert (status, headers["x-b"]) == (200, "Zo\xeb")
    assert "x-a: Zo\xeb\r\n".encode() in received[0]


async def test_answer_with_a_header_that_would_be_lost_is_refused_when_it_is_not_utf_8(
    tmp_path: Path,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-b: \xe9\r\n\r\n{}")

    async with backends_rig(tmp_path) as rig, tcp_server(answer, FIRST.address, PORT):
        (await rig.backend()).set_replicas([FIRST])
        status, _, body = await rig.ask()
        assert rig.totals.count == 0
    error = "default/digits-a/8080: the replica's header x-b is not UTF-8, and cannot be forwarded"
    assert (status, body) == (502, {"error": error, "reason": "AnswerNotUtf8"})


async def test_a_replica_gets_no_more_than_its_permits_at_once(tmp_path: Path) -> None:
    async with backends_rig(tmp_path, permits=2) as rig:
        backend = await rig.backend()
        requests = [rig.ask() for _ in range(8)]
        await rig.until_waiting(backend, 8)
        most_active = 0
        async with replica(FIRST.address, PORT, seconds=0.02) as counts:
            backend.set_replicas([FIRST])
            while not all(task.done() for task in requests):
                most_active = max(most_active, counts["active"])
                await asyncio.sleep(0.002)
        assert {task.result()[0] for task in requests} == {200}
        assert most_active == 2


async def test_response_is_streamed_and_frees_its_permit_when_it_begins(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: 1\r\nx-a: 2\r\n\r\n5\r\nfirst\r\n"
        )
        await go_on.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    async with (
        backends_rig(tmp_path, permits=1) as rig,
        tcp_server(stream, FIRST.address, PORT),
    ):
        (backend := await rig.backend()).set_replicas([FIRST])
        connector = aiohttp.UnixConnector(str(tmp_path / "0"))
        async with aiohttp.ClientSession(connector=connector) as session:
            responses = [await session.get("http://digits/stream") for _ in range(2)]
            assert [await response.content.readany() for response in responses] == [b"first", b"first"]
            assert responses[0].headers.getall("x-a") == ["1", "2"]
            assert len(backend.queue) == rig.totals.count == 0
            go_on.set()
            assert [await response.content.read() for response in responses] == [b"last", b"last"]


async def test_headers_of_a_response_may_be_as_large_as_envoy_takes(tmp_path: Path) -> None:
    large = "y" * 50_000

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-a: %s\r\n\r\n{}" % large.encode())

    async with backends_rig(tmp_path) as rig, tcp_server(answer, FIRST.address, PORT):
        (await rig.backend()).set_replicas([FIRST])
        status, headers, _ = await rig.ask()
    assert (status, headers.get("x-a")) == (200, large)


async def test_undelivered_request_is_retried_on_another_replica(tmp_path: Path) -> None:
    async with backends_rig(tmp_path, permits=1) as rig:
        backend = await rig.backend()
        backend.set_replicas([ABSENT])
        requests = [rig.ask(data=b"x") for _ in range(3)]
        await rig.until_waiting(backend, 3)
        async with replica(SECOND.address, PORT, name="two"):
            backend.set_replicas([ABSENT, SECOND])
            assert {(status, body["name"]) for status, _, body in await asyncio.gather(*requests)} == {
                (200, "two")
            }


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])  # aiohttp itself repeats the last two
@pytest.mark.parametrize(
    ("retries", "tries"),
    [
        (RetryPolicy(), 1),
        (RetryPolicy(frozenset({"Unsent", "Unavailable"}), attempts=2), 1),
        (RetryPolicy(frozenset({"Unsent", "Lost"})), 3),
        (RetryPolicy(frozenset({"Unsent", "Lost"}), attempts=1), 2),
        (RetryPolicy(frozenset({"Unsent", "Lost"}), attempts=0), 1),
    ],
)
async def test_request_is_repeated_as_its_route_allows_when_a_replica_accepted_it_and_does_not_answer(
    tmp_path: Path, retries: RetryPolicy, tries: int, method: str
) -> None:
    received = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))

    async with (
        backends_rig(tmp_path, attempts=3) as rig,
        tcp_server(hang_up, FIRST.address, PORT),
    ):
        backend = await rig.backend()
        backend.set_retries(retries)
        backend.set_replicas([FIRST])
        status, _, body = await rig.ask(method=method, data=b"x")
    assert (status, body["reason"], len(received)) == (502, "ReplicaFailed", tries)
    assert rig.totals.count == 0


async def test_other_requests_prefer_another_replica_when_one_lost_a_request_that_is_not_repeated(
    tmp_path: Path,
) -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with (
        backends_rig(tmp_path) as rig,
        tcp_server(hang_up, FIRST.address, PORT),
        replica(SECOND.address, PORT),
    ):
        backend = await rig.backend()
        backend.set_retries(RetryPolicy())
        backend.set_replicas([FIRST, SECOND])
        statuses = [(await rig.ask(data=b"x"))[0] for _ in range(6)]
    assert (statuses.count(502), statuses.count(200)) == (1, 5)


async def test_request_of_a_client_that_hangs_up_is_never_sent(tmp_path: Path) -> None:
    async with backends_rig(tmp_path) as rig:
        backend = await rig.backend()
        leaving, staying = rig.ask(data=b"leaving"), rig.ask(data=b"staying")
        await rig.until_waiting(backend, 2)
        leaving.cancel()
        await rig.until_waiting(backend, 1)
        assert rig.totals.bytes == len("staying")
        async with replica(FIRST.address, PORT) as counts:
            backend.set_replicas([FIRST])
            assert (await staying)[0] == 200
            assert counts["requests"] == 1


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
async def test_only_the_request_beyond_a_bound_is_refused(
    tmp_path: Path, bounds: dict[str, int], body: bytes, reason: str, status: int
) -> None:
    async with backends_rig(tmp_path, **bounds) as rig:
        backend = await rig.backend()
        requests = [rig.ask(data=body) for _ in range(2)]
        await rig.until_waiting(backend, 2)
        await until(lambda: rig.totals.bytes == 2 * len(body))
        refused, headers, answer_body = await rig.ask(data=body)
        assert (refused, answer_body["reason"]) == (status, reason)
        assert "default/digits-a/8080" in answer_body["error"]
        assert headers["Retry-After"] == str(rig.settings.retry_after_seconds)
        async with replica(FIRST.address, PORT):
            backend.set_replicas([FIRST])
            assert {response[0] for response in await asyncio.gather(*requests)} == {200}
        assert reason in rig.events


async def test_oversized_body_is_refused_without_retry_after(tmp_path: Path) -> None:
    async with backends_rig(tmp_path, body_bytes=1000) as rig:
        await rig.backend()
        status, headers, body = await rig.ask(data=b"x" * 1001)
    assert (status, body["reason"]) == (413, "BodyTooLarge")
    assert "Retry-After" not in headers


async def test_request_past_its_deadline_is_answered_with_the_reason(tmp_path: Path) -> None:
    async with backends_rig(tmp_path, deadline_seconds=0.05) as rig:
        await rig.backend()
        status, headers, body = await rig.ask()
    assert (status, body["reason"]) == (503, "NoReplicaInTime")
    assert "Retry-After" in headers
    assert rig.totals.count == 0


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"])
async def test_slow_response_has_no_deadline_once_a_replica_has_the_request(
    beginning: bytes, tmp_path: Path
) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(beginning)
        await asyncio.sleep(0.3)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".removeprefix(beginning))

    async with (
        backends_rig(tmp_path, deadline_seconds=0.1) as rig,
        tcp_server(slow, FIRST.address, PORT),
    ):
        (await rig.backend()).set_replicas([FIRST])
        assert (await rig.ask())[0] == 200


async def test_unreachable_replica_is_retried_until_the_deadline(tmp_path: Path) -> None:
    async with backends_rig(tmp_path, deadline_seconds=0.2) as rig:
        (await rig.backend()).set_replicas([FIRST])
        status, _, body = await rig.ask()
    assert (status, body["reason"]) == (503, "NoReplicaInTime")


@pytest.mark.parametrize("path", ["/v1/chat/completions?a=b", "/default/chat/v1/completions", "/v1/models"])
async def test_a_refusal_has_openais_form_for_a_request_of_its_api(tmp_path: Path, path: str) -> None:
    async with backends_rig(tmp_path, deadline_seconds=0.05) as rig:
        await rig.backend()
        status, _, body = await rig.ask(path=path)
    message = "default/digits-a/8080: no replica was ready in time"
    error = {"message": message, "type": "server_error", "param": None, "code": "NoReplicaInTime"}
    assert (status, body) == (503, {"error": error})


async def test_requests_of_a_removed_backend_move_to_its_successor_or_are_refused(tmp_path: Path) -> None:
    async with backends_rig(tmp_path) as rig:
        old, new = await rig.backend("default/old/8080"), await rig.backend("default/new/8080")
        moving = rig.ask(data=b"x")
        await rig.until_waiting(old, 1)
        old.end(new)
        await rig.until_waiting(new, 1)
        second = rig.ask(data=b"x")
        await rig.until_waiting(new, 2)
        async with replica(FIRST.address, PORT):
            new.set_replicas([FIRST])
            assert [(await task)[0] for task in (moving, second)] == [200, 200]
        new.set_replicas([])
        refused = rig.ask(1)
        await rig.until_waiting(new, 1)
        new.end(None, Refusal("BackendGone", "gone"))
        status, _, body = await refused
        assert (status, body["reason"]) == (503, "BackendGone")


async def test_cold_request_is_counted_once_when_it_moves_to_another_backend(tmp_path: Path) -> None:
    async with backends_rig(tmp_path) as rig:
        old, new = await rig.backend("old"), await rig.backend("new")
        request = rig.ask()
        await rig.until_waiting(old, 1)
        assert rig.cold == [-1]
        old.end(new)
        await rig.until_waiting(new, 1)
        async with replica(FIRST.address, PORT):
            new.set_replicas([FIRST])
            assert (await request)[0] == 200
            assert (await rig.ask(1))[0] == 200
    assert rig.cold[0] == -1
    assert rig.cold[1] > 0
    assert len(rig.cold) == 2


async def test_full_backend_blocks_no_other(tmp_path: Path) -> None:
    async with backends_rig(tmp_path, held_per_backend=1) as rig, replica(FIRST.address, PORT):
        full, free = await rig.backend("default/full/8080"), await rig.backend("default/other/8080")
        waiting = rig.ask()
        await rig.until_waiting(full, 1)
        free.set_replicas([FIRST])
        assert (await rig.ask(1))[0] == 200
        assert (await rig.ask(0))[0] == 503
        waiting.cancel()
