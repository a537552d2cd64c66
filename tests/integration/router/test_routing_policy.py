"""Timeouts, retries, ejection and limits of `spec.routing`, with a real Envoy and replicas that misbehave."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving.resources.names import ARM_HEADER
from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route

PORT = 8080
FIRST, SECOND, OTHER = own(82), own(83), own(84)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Replica:
    """What one replica received, and what it does with a request."""

    answer: Answer
    requests: int = 0


async def answer_at_once(writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    await writer.drain()


async def never_answer(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def close_without_answer(writer: asyncio.StreamWriter) -> None:
    raise ConnectionResetError


async def answer_busy(writer: asyncio.StreamWriter) -> None:
    writer.write(BUSY)
    await writer.drain()


def stream_for(seconds: float) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(10):
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(seconds / 10)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return answer


@contextlib.asynccontextmanager
async def replica(address: str, answer: Answer = answer_at_once) -> AsyncIterator[Replica]:
    state = Replica(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line[16:])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length: ")
                ),
                0,
            )
            await reader.readexactly(length)
            state.requests += 1
            await state.answer(writer)

    async with tcp_server(serve, address, PORT):
        yield state


@dataclass
class Reply:
    status: int
    headers: Any
    body: Any
    seconds: float


def envoy_microseconds() -> int:
    """Read the clock of Envoy's timers, CLOCK_MONOTONIC_COARSE, as libevent does: in whole microseconds.

    It lags behind the precise clock by up to a tick, so that by the precise one a timer may end too early.
    """
    coarse = 6  # <linux/time.h>
    return time.clock_gettime_ns(coarse) // 1000


async def post(session: aiohttp.ClientSession, rig: GatewayRig) -> Reply:
    began = envoy_microseconds()
    async with session.post(f"{rig.url}/default/digits/v2/x", data=b"body") as response:
        body = await response.json(content_type=None)
        seconds = (envoy_microseconds() - began) / 1_000_000
        return Reply(response.status, response.headers, body, seconds)


def route_to_digits(
    spec: dict[str, Any], backend: dict[str, Any] | None = None, **arms: int
) -> dict[str, Any]:
    """Return a Route with these fields, and these fields of its backends."""
    result = route("digits", list((arms or {"a": 10_000}).items()))
    result["spec"] |= spec
    for entry in result["spec"]["backends"]:
        entry.update(backend or {})
    return result


@contextlib.asynccontextmanager
async def serving(
    root: Path, digits_route: dict[str, Any], replicas: dict[str, list[str]]
) -> AsyncIterator[tuple[GatewayRig, aiohttp.ClientSession]]:
    async with gateway_rig(root) as rig, aiohttp.ClientSession() as session:
        await rig.serve([digits_route], [endpoint_slice(f"digits-{arm}", at) for arm, at in replicas.items()])
        yield rig, session


async def until_ejected(rig: GatewayRig, address: str) -> None:
    """Wait until Envoy's workers know the ejection: its main thread decides it after the failed response."""
    async with asyncio.timeout(10):
        while f"::{address}:{PORT}::health_flags::/failed_outlier_check" not in await clusters(rig):
            await asyncio.sleep(0.01)


async def clusters(rig: GatewayRig) -> str:
    connector = aiohttp.UnixConnector(str(rig.data_dir.admin_socket))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://admin/clusters") as response,
    ):
        return await response.text()


async def test_a_hung_replica_costs_one_try_when_another_serves(tmp_path: Path) -> None:
    routing = {"timeouts": {"perTry": "600ms"}, "retries": {"on": ["Unsent", "Lost"]}}
    async with (
        replica(FIRST, never_answer) as hung,
        replica(SECOND) as healthy,
        serving(tmp_path, route_to_digits(routing), {"a": [FIRST, SECOND]}) as (rig, session),
    ):
        replies = [await post(session, rig) for _ in range(8)]
    assert {reply.status for reply in replies} == {200}
    assert hung.requests > 0
    assert healthy.requests == len(replies)
    assert max(reply.seconds for reply in replies) >= 0.6
    assert max(reply.seconds for reply in replies) < 1.5


async def test_a_predictors_own_timeout_and_retries_replace_the_services(tmp_path: Path) -> None:
    digits_route = route_to_digits(
        {"timeouts": {"perTry": "30s"}, "retries": {"on": ["Unsent"], "attempts": 0}}
    )
    digits_route["spec"]["backends"][0] |= {
        "timeouts": {"request": "300ms"},
        "retries": {"on": ["Unsent", "Lost"], "attempts": 2},
    }
    async with (
        replica(FIRST, never_answer) as hung,
        replica(SECOND),
        serving(tmp_path, digits_route, {"a": [FIRST, SECOND]}) as (rig, session),
    ):
        replies = [await post(session, rig) for _ in range(8)]
    assert {reply.status for reply in replies} == {200}
    assert hung.requests > 0
    assert max(reply.seconds for reply in replies) < 1.5


async def test_a_request_is_504_with_its_reason_when_no_replica_answers_in_time(tmp_path: Path) -> None:
    routing = {"timeouts": {"perTry": "200ms"}, "retries": {"on": ["Unsent"]}}
    async with (
        replica(FIRST, never_answer),
        serving(tmp_path, route_to_digits(routing), {"a": [FIRST]}) as (rig, session),
    ):
        reply = await post(session, rig)
    assert (reply.status, reply.body["reason"]) == (504, "Timeout")
    assert 0.2 <= reply.seconds < 1.5


async def test_a_try_timeout_ends_with_the_first_byte_so_a_stream_goes_on(tmp_path: Path) -> None:
    routing = {"timeouts": {"perTry": "200ms"}}
    async with (
        replica(FIRST, stream_for(0.8)),
        serving(tmp_path, route_to_digits(routing), {"a": [FIRST]}) as (rig, session),
        session.post(f"{rig.url}/default/digits/v2/x") as response,
    ):
        assert await response.read() == b"x" * 10


@pytest.mark.parametrize(
    ("spec", "backend"),
    [({"timeouts": {"request": "300ms"}}, {}), ({}, {"timeouts": {"request": "300ms"}})],
    ids=["service", "predictor"],
)
async def test_a_request_timeout_bounds_the_whole_answer(
    tmp_path: Path, spec: dict[str, Any], backend: dict[str, Any]
) -> None:
    async with (
        replica(FIRST, never_answer) as state,
        serving(tmp_path, route_to_digits(spec, backend), {"a": [FIRST]}) as (rig, session),
    ):
        reply = await post(session, rig)
        assert (reply.status, reply.body["reason"]) == (504, "Timeout")
        state.answer = stream_for(2.0)
        async with session.post(f"{rig.url}/default/digits/v2/x") as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


async def test_a_lost_request_is_repeated_only_by_a_rule_of_the_route(tmp_path: Path) -> None:
    for causes, expected in ((["Unsent"], 503), (["Unsent", "Lost"], 200)):
        root = tmp_path / "-".join(causes)
        async with replica(FIRST, close_without_answer) as dying, replica(SECOND):
            digits_route = route_to_digits(
                {"retries": {"on": causes}}, {"ejection": {"consecutiveFailures": 0}}
            )
            async with serving(root, digits_route, {"a": [FIRST, SECOND]}) as (rig, session):
                replies = [await post(session, rig) for _ in range(12)]
        assert dying.requests > 0
        assert max(reply.status for reply in replies) == expected
        for reply in replies:
            if reply.status == 503:
                assert (reply.body["reason"], reply.headers["retry-after"]) == ("ReplicaFailed", "1")


async def test_an_unavailable_answer_is_repeated_by_a_rule_of_the_route(tmp_path: Path) -> None:
    for causes, expected in ((["Unsent"], {200, 503}), (["Unavailable"], {200})):
        root = tmp_path / "-".join(causes)
        async with replica(FIRST, answer_busy), replica(SECOND):
            digits_route = route_to_digits({"retries": {"on": causes}})
            async with serving(root, digits_route, {"a": [FIRST, SECOND]}) as (rig, session):
                statuses = {(await post(session, rig)).status for _ in range(12)}
        assert statuses == expected


async def test_no_retry_is_made_without_attempts(tmp_path: Path) -> None:
    async with replica(FIRST, close_without_answer) as dying:
        digits_route = route_to_digits({"retries": {"on": ["Unsent", "Lost"], "attempts": 0}})
        async with serving(tmp_path, digits_route, {"a": [FIRST]}) as (rig, session):
            assert (await post(session, rig)).status == 503
    assert dying.requests == 1


async def test_another_predictor_answers_when_the_only_replica_of_one_is_gone(tmp_path: Path) -> None:
    digits_route = route_to_digits({}, a=5000, b=5000)
    # nothing listens at FIRST, which Envoy does not know yet
    async with (
        replica(OTHER) as other,
        serving(tmp_path, digits_route, {"a": [FIRST], "b": [OTHER]}) as (rig, session),
    ):
        replies = [await post(session, rig) for _ in range(30)]
    assert {reply.status for reply in replies} == {200}
    assert {tuple(reply.headers.getall(ARM_HEADER)) for reply in replies} == {("b",)}
    assert other.requests == 30


async def test_a_predictor_without_weight_gets_no_retry(tmp_path: Path) -> None:
    digits_route = route("digits", [("a", 10_000)], unweighted=["b"])
    async with (
        replica(OTHER) as other,
        serving(tmp_path, digits_route, {"a": [FIRST], "b": [OTHER]}) as (rig, session),
    ):
        replies = [await post(session, rig) for _ in range(10)]
    assert {reply.status for reply in replies} == {503}
    assert other.requests == 0


@pytest.mark.parametrize(
    ("retries", "expected"),
    [({}, {200, 503}), ({"acrossPredictors": True}, {200})],
    ids=["default", "across"],
)
async def test_sticky_callers_stay_at_their_predictor_without_a_rule_of_the_route(
    tmp_path: Path, retries: dict[str, bool], expected: set[int]
) -> None:
    sticky = {"header": "x-user-id", "salt": "spring"}
    digits_route = route_to_digits({"retries": retries, "sticky": sticky}, a=5000, b=5000)
    statuses = set()
    async with (
        replica(OTHER),
        serving(tmp_path, digits_route, {"a": [FIRST], "b": [OTHER]}) as (rig, session),
    ):
        for user in range(30):
            url, headers = f"{rig.url}/default/digits/v2/x", {"x-user-id": str(user)}
            async with session.post(url, headers=headers) as response:
                statuses.add(response.status)
    assert statuses == expected


async def test_requests_above_the_limit_are_429_with_retry_after_and_reason(tmp_path: Path) -> None:
    digits_route = route_to_digits({}, {"limits": {"requests": 3}})
    async with (
        replica(FIRST, stream_for(1.0)),
        serving(tmp_path, digits_route, {"a": [FIRST]}) as (rig, session),
    ):
        answers = [session.post(f"{rig.url}/default/digits/v2/x") for _ in range(8)]
        responses = await asyncio.gather(*answers)
        counts = Counter(response.status for response in responses)
        refused = next(response for response in responses if response.status == 429)
        body = await refused.json()
        for response in responses:
            response.release()
    assert counts == {200: 3, 429: 5}
    assert (body["reason"], refused.headers["retry-after"]) == ("TooManyRequests", "1")


async def test_errors_of_the_gateway_have_openais_form_for_requests_of_its_api(tmp_path: Path) -> None:
    async def refused(path: str) -> tuple[int, Any, Any]:
        async with session.post(f"{rig.url}/default/{path}") as response:
            return response.status, response.headers.get("retry-after"), await response.json()

    async with serving(tmp_path, route_to_digits({}), {}) as (rig, session):
        for path in ("v1/chat/completions", "v1/completions?a=/b", "v1/models", "v1/models/org/m"):
            status, retry_after, body = await refused(f"digits/{path}")
            assert (status, retry_after) == (503, "1")
            assert body.keys() == {"error"}
            assert body["error"].pop("message")
            assert body["error"] == {"type": "server_error", "param": None, "code": "Unavailable"}
        for path in ("v1/models/m:predict", "v2/models/m/infer?a=/v1/completions"):
            _, _, body = await refused(f"digits/{path}")
            assert (type(body["error"]), body["reason"]) == (str, "Unavailable")
        status, _, body = await refused("absent/v1/chat/completions")
        assert (status, body["error"]["type"], body["error"]["code"]) == (404, "invalid_request_error", None)


async def test_a_replica_that_keeps_failing_is_ejected_and_a_sole_one_is_not(tmp_path: Path) -> None:
    digits_route = route_to_digits(
        {"retries": {"on": ["Unsent", "Lost"]}}, {"ejection": {"consecutiveFailures": 3, "duration": "60s"}}
    )
    async with (
        replica(FIRST, close_without_answer) as failing,
        replica(SECOND) as healthy,
        serving(tmp_path, digits_route, {"a": [FIRST, SECOND]}) as (rig, session),
    ):
        while failing.requests < 3:
            assert (await post(session, rig)).status == 200
        await until_ejected(rig, FIRST)
        for _ in range(40):
            assert (await post(session, rig)).status == 200
        assert failing.requests == 3
        await rig.serve([digits_route], [endpoint_slice("digits-a", [SECOND])])
        healthy.answer = close_without_answer
        for _ in range(5):
            assert (await post(session, rig)).body["reason"] == "ReplicaFailed"
        healthy.answer = answer_at_once
        assert (await post(session, rig)).status == 200


@pytest.mark.parametrize("errors", [0, 3, 8])
async def test_server_errors_eject_a_replica_only_by_a_rule_of_the_route(tmp_path: Path, errors: int) -> None:
    digits_route = route_to_digits({}, {"ejection": {"consecutiveServerErrors": errors, "duration": "60s"}})
    async with (
        replica(FIRST, answer_busy) as busy,
        replica(SECOND),
        serving(tmp_path, digits_route, {"a": [FIRST, SECOND]}) as (rig, session),
    ):
        for _ in range(100):
            if busy.requests == (errors or 10):
                break
            await post(session, rig)
        assert busy.requests == (errors or 10)
        if errors:
            await until_ejected(rig, FIRST)
        for _ in range(40):
            await post(session, rig)
        assert (busy.requests > (errors or 10)) == (errors == 0)


async def test_a_changed_policy_reaches_a_service_under_load_without_a_failed_request(tmp_path: Path) -> None:
    async with replica(FIRST), serving(tmp_path, route_to_digits({}), {"a": [FIRST]}) as (rig, session):
        stop = asyncio.Event()

        async def load() -> set[int]:
            statuses = set()
            while not stop.is_set():
                statuses.add((await post(session, rig)).status)
            return statuses

        clients = [asyncio.create_task(load()) for _ in range(4)]
        up = [endpoint_slice("digits-a", [FIRST])]
        for number in range(10):
            policy = {"limits": {"requests": 100 + number}, "ejection": {"consecutiveFailures": 3 + number}}
            await rig.serve([route_to_digits({"timeouts": {"perTry": f"{5 + number}s"}}, policy)], up)
        stop.set()
        assert set().union(*await asyncio.gather(*clients)) == {200}
