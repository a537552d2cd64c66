"""Requests that a busy server refuses are sent again after the time that it asks for, and no others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from serving import errors
from serving.kube.connection import refusals
from serving.kube.connection.client import Configuration, Kube
from tests.rig.machine.ports import free_port

PAST = "Sat, 01 Jan 2000 00:00:00 GMT"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return paused


class Server:
    """Raises these errors in turn, and then answers."""

    def __init__(self, *refusals_in_turn: Exception) -> None:
        self._refusals = list(refusals_in_turn)
        self.requests = 0

    async def send(self) -> bytes:
        self.requests += 1
        if self._refusals:
            raise self._refusals.pop(0)
        return b"answer"


async def test_a_refused_request_is_sent_again_after_each_pause(pauses: list[float]) -> None:
    server = Server(errors.Busy("", 2.0), errors.Busy("", 5.0))
    assert await refusals.repeated(server.send) == b"answer"
    assert pauses == [2.0, 5.0]


async def test_a_request_is_not_sent_again_at_once_when_the_server_asks_for_no_pause(
    pauses: list[float],
) -> None:
    server = Server(errors.Busy("", 0.0), errors.Busy("", 0.0))
    assert await refusals.repeated(server.send) == b"answer"
    assert pauses == [refusals.LEAST_PAUSE_SECONDS] * 2


async def test_a_request_fails_when_it_is_refused_too_often(pauses: list[float]) -> None:
    server = Server(*[errors.Busy("", 1.0)] * 20)
    with pytest.raises(errors.Busy):
        await refusals.repeated(server.send)
    assert (server.requests, len(pauses)) == (refusals.MOST_REPEATS + 1, refusals.MOST_REPEATS)


async def test_a_request_fails_at_once_when_the_pause_is_longer_than_a_request(pauses: list[float]) -> None:
    server = Server(errors.Busy("", refusals.MOST_SECONDS + 1))
    with pytest.raises(errors.Busy):
        await refusals.repeated(server.send)
    assert (server.requests, pauses) == (1, [])


async def test_a_request_fails_at_once_when_its_caller_repeats_it(pauses: list[float]) -> None:
    server = Server(errors.Busy("", 1.0), errors.Busy("", 1.0))
    with refusals.passed_on(), pytest.raises(errors.Busy):
        await refusals.repeated(server.send)
    assert await refusals.repeated(server.send) == b"answer"
    assert pauses == [1.0]


async def test_a_request_that_the_server_may_have_executed_is_not_sent_again(pauses: list[float]) -> None:
    server = Server(errors.Unavailable("the connection broke"))
    with pytest.raises(errors.Unavailable):
        await refusals.repeated(server.send)
    assert (server.requests, pauses) == (1, [])


@asynccontextmanager
async def kube_of(statuses: list[int], retry_after: str) -> AsyncIterator[Kube]:
    """Connect to a server that answers with these statuses in turn."""

    async def answer(request: web.Request) -> web.Response:
        headers = {"Retry-After": retry_after}
        return web.json_response({"kind": "Status"}, status=statuses.pop(0), headers=headers)

    application = web.Application()
    application.router.add_get("/version", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with Kube(Configuration(host=f"http://127.0.0.1:{port}"), field_manager="test") as kube:
            yield kube
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("retry_after", ["0", PAST])
async def test_the_client_gets_the_answer_after_a_refusal(code: int, retry_after: str) -> None:
    statuses = [code, 200]
    async with kube_of(statuses, retry_after) as kube:
        assert await kube.raw("/version") == b'{"kind": "Status"}'
    assert not statuses


@pytest.mark.parametrize("code", [502, 504])
async def test_a_request_is_not_sent_again_when_a_gateway_may_have_passed_it_on(code: int) -> None:
    statuses = [code, 200]
    async with kube_of(statuses, PAST) as kube:
        with pytest.raises(errors.Unavailable) as raised:
            await kube.raw("/version")
    assert (type(raised.value), statuses) == (errors.Unavailable, [200])
