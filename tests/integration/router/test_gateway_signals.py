"""Envoy's counts on the gateway's page of metrics: right while requests are on their way, and whatever becomes of them."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving import clock, errors, metrics
from serving.kube import Key
from serving.router.metrics import collector
from serving.router.metrics.collector import StatisticsCollector
from serving.router.metrics.labels import labels_of
from serving.system import processes
from tests.rig.addresses import own
from tests.rig.gateway import World, backend, endpoint_slice, route, world

PORT = 8080
REPLICA, OTHER, NOBODY = own(71), own(72), own(73)
DIGITS = route("digits", [("a", 10_000)])
UP = [endpoint_slice("digits-a", [REPLICA])]
WHO = {"namespace": "default", "inference": "digits", "predictor": "a", "revision": "digits-a"}

Samples = dict[str, float]


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FRESH_SECONDS", "PAUSE_SHARE", "DURATIONS_SECONDS"):
        monkeypatch.setattr(collector, name, 0.0)


def parsed(page: str, **labels: str) -> Samples:
    """The samples with these labels, by name and by what other labels they have."""
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                rest = [value for name, value in sample.labels.items() if name not in labels]
                found[" ".join([sample.name, *rest])] = sample.value
    return found


class Reader:
    """Who scrapes the page of one gateway."""

    def __init__(self, gateway: World) -> None:
        self.signals = StatisticsCollector(gateway.admin, gateway.process)
        self.signals.mark_routes_known()
        self.know(DIGITS)

    def know(self, known: dict[str, Any]) -> None:
        meta = known["metadata"]
        self.signals.set_labels(Key(meta["namespace"], meta["name"]), labels_of(known))

    async def read(self) -> Samples:
        return parsed(await self.signals.page(), **WHO)

    async def about(self) -> Samples:
        return parsed(await self.signals.page())

    async def until(self, **wanted: float) -> Samples:
        """Read until these counts are so: Envoy tells a client before it counts, and has durations a reading later."""
        deadline = clock.monotonic() + 5
        while True:
            found = await self.read()
            if {name: found.get(f"slipway_request{name}") for name in wanted} == wanted:
                return found
            assert clock.monotonic() < deadline, found
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(root: Path, **kwargs: Any) -> AsyncIterator[tuple[World, Reader, aiohttp.ClientSession]]:
    async with world(root) as gateway, aiohttp.ClientSession() as session:
        await gateway.serve([kwargs.get("route", DIGITS)], kwargs.get("slices", UP))
        yield gateway, Reader(gateway), session


async def ask(gateway: World, session: aiohttp.ClientSession, path: str = "x") -> int:
    async with session.get(f"{gateway.url}/default/digits/v2/{path}") as answer:
        await answer.read()
        return answer.status


@contextlib.asynccontextmanager
async def answering(status: Callable[[], bytes]) -> AsyncIterator[None]:
    """A replica that answers with this status, or hangs up where there is none."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if not (said := status()):
                    break
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % said)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, REPLICA, PORT)
    try:
        yield
    finally:
        server.close()


async def test_without_requests_there_is_nothing_but_who_counts_and_since_when(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, reader, _):
        before = clock.now().timestamp()
        found = await reader.about()
    assert found.keys() == {
        "slipway_gateway_info local", "slipway_gateway_reading_timestamp_seconds", "slipway_envoy_start_time_seconds",
    }  # fmt: skip
    assert found["slipway_gateway_reading_timestamp_seconds"] == pytest.approx(before, abs=5)
    assert found["slipway_envoy_start_time_seconds"] == pytest.approx(before, abs=10)


async def test_a_request_is_counted_as_it_enters_and_its_answer_when_it_is_given(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT, seconds=0.4) as seen:
        asked = [asyncio.create_task(ask(gateway, session)) for _ in range(3)]
        while seen["active"] < 3:
            await asyncio.sleep(0.005)
        found = await reader.read()
        assert found["slipway_requests_received_total"] == found["slipway_requests_in_flight"] == 3
        assert "slipway_requests_total 2xx" not in found
        await asyncio.gather(*asked)
        found = await reader.until(
            s_received_total=3, s_in_flight=0, _duration_seconds_count=3, **{"s_total 2xx": 3}
        )
    assert found["slipway_request_duration_seconds_bucket 0.25"] == 0
    assert found["slipway_request_duration_seconds_bucket 1"] == 3
    assert found["slipway_request_duration_seconds_bucket +Inf"] == 3
    assert found["slipway_request_duration_seconds_sum"] == pytest.approx(1.2, rel=0.2)


async def test_a_request_that_waits_for_a_connection_has_come_already(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind((REPLICA, PORT))
        full.listen(0)
        for _ in range(2):  # more than its backlog: to the next, the kernel answers nothing
            client = stack.enter_context(socket.socket())
            client.setblocking(False)  # noqa: FBT003 as it is declared
            client.connect_ex((REPLICA, PORT))
        async with serving(tmp_path) as (gateway, reader, session):
            asked = asyncio.create_task(ask(gateway, session))
            await reader.until(s_received_total=1, s_in_flight=1)
            asked.cancel()
            await reader.until(s_received_total=1, s_in_flight=0)


async def test_answers_are_counted_by_class(tmp_path: Path) -> None:
    said = iter([b"200 OK", b"404 No", b"500 No", b"503 No", b"302 There"])
    async with serving(tmp_path) as (gateway, reader, session), answering(lambda: next(said)):
        url = f"{gateway.url}/default/digits/v2/x"
        for _ in range(5):
            async with session.get(url, allow_redirects=False):
                pass
        found = await reader.until(
            s_received_total=5, s_in_flight=0, _duration_seconds_count=5, **{"s_total 5xx": 2}
        )
    assert [found.get(f"slipway_requests_total {n}xx") for n in range(1, 6)] == [None, 1, 1, 1, 2]


async def test_a_client_that_hangs_up_has_come_and_is_not_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT, seconds=5) as seen:
        asked = asyncio.create_task(ask(gateway, session))
        while not seen["active"]:
            await asyncio.sleep(0.005)
        asked.cancel()
        found = await reader.until(s_received_total=1, s_in_flight=0)
    assert [name for name in found if name.startswith("slipway_requests_total")] == []
    assert found.get("slipway_request_duration_seconds_count", 0) == 0


async def test_what_is_tried_on_a_second_replica_has_come_once(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, slices=[endpoint_slice("digits-a", [REPLICA, NOBODY])]) as (gateway, reader, session),
        backend(REPLICA, PORT),
    ):  # fmt: skip
        assert {await ask(gateway, session) for _ in range(40)} == {200}
        await reader.until(s_received_total=40, s_in_flight=0, **{"s_total 2xx": 40})


async def test_what_no_replica_took_has_come_once_and_failed(tmp_path: Path) -> None:
    async with serving(tmp_path, slices=[endpoint_slice("digits-a", [NOBODY])]) as (gateway, reader, session):
        assert {await ask(gateway, session) for _ in range(5)} == {503}
        await reader.until(s_received_total=5, s_in_flight=0, **{"s_total 5xx": 5})


async def test_what_a_replica_did_not_answer_has_come_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), answering(lambda: b""):
        assert {await ask(gateway, session) for _ in range(5)} == {503}
        await reader.until(s_received_total=5, s_in_flight=0, **{"s_total 5xx": 5})


async def test_what_the_activator_is_not_there_to_hold_has_come(tmp_path: Path) -> None:
    at_zero = route("digits", [("a", 10_000)], on_demand="a")
    async with serving(tmp_path, route=at_zero, slices=[]) as (gateway, reader, session):
        assert {await ask(gateway, session) for _ in range(4)} == {503}
        await reader.until(s_received_total=4, s_in_flight=0, **{"s_total 5xx": 4})


async def test_counts_of_a_busy_gateway_never_go_back(tmp_path: Path) -> None:
    slices = [endpoint_slice("digits-a", [REPLICA, NOBODY])]
    async with serving(tmp_path, slices=slices) as (gateway, reader, session), backend(REPLICA, PORT):
        over = clock.monotonic() + 1.5

        async def go_on() -> int:
            count = 0
            while clock.monotonic() < over:
                await ask(gateway, session)
                count += 1
            return count

        asking = [asyncio.create_task(go_on()) for _ in range(8)]
        seen = []
        while clock.monotonic() < over:
            found = await reader.read()
            seen.append(found.get("slipway_requests_received_total", 0))
        sent = sum(await asyncio.gather(*asking))
        await reader.until(s_received_total=sent, s_in_flight=0)
    assert seen == sorted(seen)
    assert len(set(seen)) > 3


async def test_durations_are_read_now_and_then_and_stay_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        await ask(gateway, session)
        await reader.until(_duration_seconds_count=1)
        monkeypatch.setattr(collector, "DURATIONS_SECONDS", 60.0)
        await reader.read()
        for _ in range(3):
            await ask(gateway, session)
        await reader.until(s_received_total=4, _duration_seconds_count=1)
        await ask(gateway, session)
        await reader.until(s_received_total=5, _duration_seconds_count=1)


async def test_readings_in_quick_succession_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        await ask(gateway, session)
        await reader.until(s_received_total=1)
        monkeypatch.setattr(collector, "FRESH_SECONDS", 60.0)
        at = "slipway_gateway_reading_timestamp_seconds"
        first = (await reader.about())[at]
        assert (await reader.about())[at] == first


async def test_another_envoy_counts_from_nothing_and_says_since_when(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        for _ in range(7):
            await ask(gateway, session)
        await reader.until(s_received_total=7)
        before = await reader.about()
        running = gateway.process.running()
        assert running is not None
        processes.send_signal(running.process, signal.SIGKILL)
        while gateway.process.running() is not None:
            await asyncio.sleep(0.01)
        gone = await reader.about()
        assert gone == before, "without Envoy the counts of its last reading stay, and say of when they are"
        gateway.process.start(gateway.config())
        await gateway.xds.wait_ready(20)
        await gateway.xds.wait_acknowledged()
        async with asyncio.timeout(10):
            while await ask(gateway, session) != 200:
                await asyncio.sleep(0.01)
        found = await reader.about()
    started, read = "slipway_envoy_start_time_seconds", "slipway_gateway_reading_timestamp_seconds"
    assert found[started] > before[started]
    assert found[read] > before[read]
    assert found["slipway_requests_received_total " + " ".join(WHO.values())] < 7


async def test_a_revision_that_goes_leaves_the_page_and_comes_back_from_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT), backend(OTHER, PORT):
        for _ in range(3):
            await ask(gateway, session)
        await reader.until(s_received_total=3)
        other = route("digits", [("b", 10_000)])
        await gateway.serve([other], [endpoint_slice("digits-b", [OTHER])])
        reader.know(other)
        assert await reader.read() == {}
        await ask(gateway, session)
        found = parsed(await reader.signals.page(), **{**WHO, "predictor": "b", "revision": "digits-b"})
        assert found["slipway_requests_received_total"] == 1
        await gateway.serve([DIGITS], UP)
        reader.know(DIGITS)
        await ask(gateway, session)
        await reader.until(s_received_total=1)


async def test_the_page_is_not_given_before_all_routes_are_known(tmp_path: Path) -> None:
    async with world(tmp_path) as gateway:
        with pytest.raises(errors.Unavailable):
            await StatisticsCollector(gateway.admin, gateway.process).page()


async def test_the_page_is_where_the_data_directory_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        await ask(gateway, session)
        where = gateway.data_dir
        async with metrics.served(reader.signals.page, where.metrics("gateway"), 0) as port:
            [page] = metrics.pages(where.pages)
            assert (page.component, page.port) == ("gateway", port)
            async with session.get(page.url) as answer:
                assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
                assert parsed(await answer.text(), **WHO)["slipway_requests_received_total"] == 1
            async with session.get(page.url.removesuffix("metrics")) as answer:
                assert answer.status == 404
        async with metrics.served(reader.signals.page, where.metrics("gateway"), 0) as again:
            assert again == port
