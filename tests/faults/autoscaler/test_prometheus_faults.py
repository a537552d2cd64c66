"""A Prometheus that refuses, hangs or sends malformed responses to a backfill."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autoscaler import controller
from autoscaler.policy.config import PolicyConfig
from autoscaler.signals import prometheus
from autoscaler.state import backfill
from autoscaler.state.backfill import (
    HISTORY_READ,
    HISTORY_UNAVAILABLE,
    STEP_SECONDS,
    Backfill,
    BackfillRequest,
    backfilled_state,
)
from autoscaler.state.store import StateStore
from serving import clock
from serving.kube import Key, Watches
from serving.objects import Object
from serving.resources import kinds, names
from tests.fakes.gateway_pages import FakePages
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import QUICK, kill, running, until

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUERY = 'sum(rate(slipway_requests_received_total{namespace="n"}[5m]))'


class EventRecords:
    """The states that a target was given, and the Events about it."""

    def __init__(self) -> None:
        self.states: list[Object] = []
        self.events: list[tuple[str, str]] = []
        self.ended = 0
        """Backfills that ended."""

    async def emit(self, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def end(self) -> None:
        self.ended += 1

    def request(self, name: str = "a") -> BackfillRequest:
        config = PolicyConfig(0, 5)
        return BackfillRequest(Key("n", name), QUERY, config, self.states.append, self.end, self.emit)

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]


class FaultyPrometheus:
    """Prometheus's `query_range`: two hours of two requests per second, or another answer."""

    def __init__(self) -> None:
        self.answer: Responder = self.series
        self.requests = 0
        self.url = ""

    async def series(self, request: web.Request) -> web.Response:
        query = request.query
        assert query["query"] == QUERY
        start, end, step = float(query["start"]), float(query["end"]), float(query["step"])
        assert (end - start) / step < 11_000, "Prometheus answers no more steps than this"
        values = [[end - i * step, "2"] for i in range(24)]
        return web.json_response(
            {
                "status": "success",
                "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]},
            }
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        return await self.answer(request)


@contextlib.asynccontextmanager
async def serving(server: FaultyPrometheus, port: int = 0) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/api/v1/query_range", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def working(url: str) -> AsyncIterator[Backfill]:
    running_backfill = Backfill(url)
    task = asyncio.create_task(running_backfill.run())
    try:
        yield running_backfill
        assert not task.done(), "it ended"
    finally:
        await kill([task])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(backfill, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(prometheus, "RANGE_TIMEOUT_SECONDS", 0.2)


def text(body: str | bytes, status: int = 200) -> Responder:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return respond


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(OSError):
        while True:
            await response.write(b" " * 65_536)
    return response


async def hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError


FAULTS = {
    "hangs": hangs,
    "endless": endless,
    "page": text("<html>sign in</html>"),
    "empty-body": text(""),
    "list": text("[1, 2]"),
    "vector": text('{"status":"success","data":{"resultType":"vector","result":[]}}'),
    "values": text('{"status":"success","data":{"resultType":"matrix","result":[{"values":[["x"]]}]}}'),
    "busy": text('{"status":"error","errorType":"timeout","error":"too many queries"}', 503),
    "proxy": text("bad gateway", 502),
    "cut": text(b'{"status":"succ'),
    "bytes": text(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_history_is_read_once_the_server_recovers_from(fault: str) -> None:
    server, records = FaultyPrometheus(), EventRecords()
    server.answer = FAULTS[fault]
    async with serving(server), working(server.url) as work:
        work.request(records.request())
        await until(lambda: server.requests >= 2, "a second attempt")
        assert not records.states
        assert not records.ended
        server.answer = server.series
        await until(lambda: records.ended == 1, "the end")
        assert records.reasons == [HISTORY_READ]
        assert len(records.states) == 1


async def test_endless_response_is_abandoned_at_its_size_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "RANGE_TIMEOUT_SECONDS", 60.0)
    server, records = FaultyPrometheus(), EventRecords()
    server.answer = endless
    async with serving(server), working(server.url) as work:
        work.request(records.request())
        await until(lambda: server.requests >= 2, "a second attempt")


async def test_history_is_read_once_the_server_starts() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server, records = FaultyPrometheus(), EventRecords()
    async with working(f"http://127.0.0.1:{port}") as work:
        work.request(records.request())
        await asyncio.sleep(0.05)
        assert not records.events
        async with serving(server, port):
            await until(lambda: bool(records.states), "the load")


async def test_history_is_read_once_a_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, submit = 0, ThreadPoolExecutor.submit

    def refused_once(*arguments: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("can't start new thread")
        return submit(*arguments, **options)

    server, records = FaultyPrometheus(), EventRecords()
    async with serving(server), working(server.url) as work:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", refused_once)
        work.request(records.request())
        await until(lambda: bool(records.states), "the load, at the second attempt")
    assert server.requests == 2


async def test_expired_target_is_abandoned_and_the_next_one_is_read() -> None:
    server, old, new = FaultyPrometheus(), EventRecords(), EventRecords()
    server.answer = text("", 500)
    async with serving(server), working(server.url) as work:
        expired = replace(old.request("old"), requested=clock.monotonic() - backfill.GIVE_UP_SECONDS)
        work.request(expired)
        work.request(new.request("new"))
        await until(lambda: old.ended == 1, "the end")
        assert old.reasons == [HISTORY_UNAVAILABLE]
        server.answer = server.series
        await until(lambda: bool(new.states), "the load of the other")
        assert not old.states


async def test_refused_query_is_not_repeated() -> None:
    server, records = FaultyPrometheus(), EventRecords()
    server.answer = text('{"status":"error","errorType":"bad_data","error":"exceeded 11,000 points"}', 400)
    async with serving(server), working(server.url) as work:
        work.request(records.request())
        await until(lambda: records.ended == 1, "the end")
        server.answer = server.series
        work.request(records.request("b"))
        await until(lambda: records.ended == 2, "the load of the next")
        assert records.reasons == [HISTORY_UNAVAILABLE, HISTORY_READ]
        assert server.requests == 2


async def test_empty_history_changes_no_state_and_emits_no_event() -> None:
    server, records = FaultyPrometheus(), EventRecords()
    server.answer = text('{"status":"success","data":{"resultType":"matrix","result":[]}}')
    async with serving(server), working(server.url) as work:
        work.request(records.request())
        await until(lambda: records.ended == 1, "the end")
        server.answer = server.series
        work.request(records.request("b"))
        await until(lambda: bool(records.events), "the load of the next")
        assert len(records.states) == 1
        assert "2 hours" in records.events[0][1]
        assert STEP_SECONDS == 300


@pytest.mark.parametrize(
    ("stored", "is_read"),
    [(None, True), ({"backfilled": False}, True), ({"backfilled": True}, False), ({}, False)],
    ids=["nothing", "pending", "ended", "older-version"],
)
async def test_load_is_read_after_a_restart_unless_its_backfill_had_ended(
    stored: Object | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    monkeypatch.setattr(controller, "TICK_SECONDS", 0.02)
    api, store = FakeKube(), StateStore(tmp_path)
    labels = {names.INFERENCE_LABEL: "i", names.PREDICTOR_LABEL: "p"}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5}
    counts = {"replicas": 1, "readyReplicas": 1}
    api.add(kinds.DEPLOYMENT, deployment("d", labels=labels, status=counts))
    added = api.add(kinds.AUTOSCALER, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
    key, uid = Key("default", "a"), added["metadata"]["uid"]
    if stored is not None:
        store.write(key, uid, backfilled_state(PolicyConfig(1, 5), {}) | stored)
    server = FaultyPrometheus()
    server.answer = text("", 500)

    async def run(holds: Callable[[], bool], description: str) -> None:
        kube = api.client("autoscaler")
        watches, settings = Watches(kube), replace(QUICK, prometheus=server.url)
        scaler = controller.AutoscalerController(kube, settings, watches, pages=FakePages("d"), store=store)
        async with running(scaler.run(), watches.run()):
            await until(holds, description)

    def is_decided() -> bool:
        return bool(api.find(kinds.AUTOSCALER)[0].get("status"))

    async with serving(server):
        await run(lambda: is_decided() and (server.requests > 1 or not is_read), "a decision")
        learned = store.read(key, uid)
        assert learned is not None
        assert learned["backfilled"] is not is_read
        assert bool(server.requests) is is_read
        server.answer = text('{"status":"success","data":{"resultType":"matrix","result":[]}}')
        asked = server.requests
        await run(lambda: server.requests > asked or not is_read, "the query again")
