"""Envoy's counts on the gateway's metrics page are correct during a request and after any end."""

import asyncio
import contextlib
import copy
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
from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.gateway import GatewayRig, backend, endpoint_slice, gateway_rig, route

PORT = 8080
REPLICA, OTHER, NOBODY = own(71), own(72), own(73)
DIGITS = route("digits", [("a", 10_000)])
UP = [endpoint_slice("digits-a", [REPLICA])]
LABELS = {"namespace": "default", "inference": "digits", "predictor": "a", "revision": "digits-a"}

Samples = dict[str, float]


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FRESH_SECONDS", "PAUSE_SHARE"):
        monkeypatch.setattr(collector, name, 0.0)


def parsed(page: str, **labels: str) -> Samples:
    """Return the samples with these labels, by name and the values of their other labels."""
    values: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                other_values = [value for name, value in sample.labels.items() if name not in labels]
                values[" ".join([sample.name, *other_values])] = sample.value
    return values


def collector_of(gateway: GatewayRig) -> StatisticsCollector:
    record = gateway.data_dir.earlier_answers
    return StatisticsCollector("local", gateway.admin, gateway.process, record)


class Reader:
    """A scraper of one gateway's page."""

    def __init__(self, gateway: GatewayRig) -> None:
        self.signals = collector_of(gateway)
        self.signals.mark_routes_known()
        self.know(DIGITS)

    def know(self, route_object: dict[str, Any]) -> None:
        meta = route_object["metadata"]
        self.signals.set_labels(Key(meta["namespace"], meta["name"]), labels_of(route_object))

    async def read(self) -> Samples:
        return parsed(await self.signals.page(), **LABELS)

    async def read_all(self) -> Samples:
        return parsed(await self.signals.page())

    async def until(self, **expected: float) -> Samples:
        """Read until the counts are as expected: Envoy counts after its response."""
        deadline = clock.monotonic() + 5
        while True:
            samples = await self.read()
            if {name: samples.get(f"slipway_request{name}") for name in expected} == expected:
                return samples
            assert clock.monotonic() < deadline, samples
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(
    root: Path, **kwargs: Any
) -> AsyncIterator[tuple[GatewayRig, Reader, aiohttp.ClientSession]]:
    async with gateway_rig(root) as gateway, aiohttp.ClientSession() as session:
        await gateway.serve([kwargs.get("route", DIGITS)], kwargs.get("slices", UP))
        yield gateway, Reader(gateway), session


async def ask(gateway: GatewayRig, session: aiohttp.ClientSession, path: str = "x") -> int:
    async with session.get(f"{gateway.url}/default/digits/v2/{path}") as response:
        await response.read()
        return response.status


@contextlib.asynccontextmanager
async def answering(status: Callable[[], bytes]) -> AsyncIterator[None]:
    """Run a replica that answers with this status, or hangs up if it is empty."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            if not (status_line := status()):
                break
            writer.write(b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % status_line)
            await writer.drain()

    async with tcp_server(respond, REPLICA, PORT):
        yield


async def test_page_without_requests_has_only_gateway_and_times(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, reader, _):
        now = clock.now().timestamp()
        samples = await reader.read_all()
    assert samples.keys() == {
        "slipway_gateway_info local",
        "slipway_gateway_reading_timestamp_seconds",
        "slipway_envoy_start_time_seconds",
    }
    assert samples["slipway_gateway_reading_timestamp_seconds"] == pytest.approx(now, abs=5)
    assert samples["slipway_envoy_start_time_seconds"] == pytest.approx(now, abs=10)


async def test_requests_above_the_limit_are_received_and_answered_4xx(tmp_path: Path) -> None:
    limited = copy.deepcopy(DIGITS)
    limited["spec"]["backends"][0]["limits"] = {"requests": 2}
    async with (
        serving(tmp_path, route=limited) as (gateway, reader, session),
        backend(REPLICA, PORT, seconds=0.4),
    ):
        statuses = await asyncio.gather(*(ask(gateway, session) for _ in range(5)))
        assert sorted(statuses) == [200, 200, 429, 429, 429]
        samples = await reader.until(
            s_received_total=5, s_in_flight=0, **{"s_total 2xx": 2, "s_total 4xx": 3}
        )
        assert "slipway_requests_total 5xx" not in samples


async def test_request_is_counted_on_arrival_and_its_response_at_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT, seconds=0.4) as counts:
        requests = [asyncio.create_task(ask(gateway, session)) for _ in range(3)]
        while counts["active"] < 3:
            await asyncio.sleep(0.005)
        samples = await reader.read()
        assert samples["slipway_requests_received_total"] == samples["slipway_requests_in_flight"] == 3
        assert "slipway_requests_total 2xx" not in samples
        await asyncio.gather(*requests)
        samples = await reader.until(
            s_received_total=3, s_in_flight=0, _duration_seconds_count=3, **{"s_total 2xx": 3}
        )
    assert samples["slipway_request_duration_seconds_bucket 0.25"] == 0
    assert samples["slipway_request_duration_seconds_bucket 1"] == 3
    assert samples["slipway_request_duration_seconds_bucket +Inf"] == 3
    assert samples["slipway_request_duration_seconds_sum"] == pytest.approx(1.2, rel=0.2)


async def test_request_waiting_for_a_connection_is_counted_as_received(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind((REPLICA, PORT))
        full.listen(0)
        for _ in range(2):  # fills the backlog: the kernel does not answer the next one
            client = stack.enter_context(socket.socket())
            client.setblocking(False)  # noqa: FBT003 the signature of socket
            client.connect_ex((REPLICA, PORT))
        async with serving(tmp_path) as (gateway, reader, session):
            request = asyncio.create_task(ask(gateway, session))
            await reader.until(s_received_total=1, s_in_flight=1)
            request.cancel()
            await reader.until(s_received_total=1, s_in_flight=0)


async def test_responses_are_counted_by_status_class(tmp_path: Path) -> None:
    status_lines = iter([b"200 OK", b"404 No", b"500 No", b"503 No", b"302 There", b"999 No"])
    async with serving(tmp_path) as (gateway, reader, session), answering(lambda: next(status_lines)):
        url = f"{gateway.url}/default/digits/v2/x"
        for _ in range(6):
            async with session.get(url, allow_redirects=False):
                pass
        samples = await reader.until(
            s_received_total=6, s_in_flight=0, _duration_seconds_count=6, **{"s_total 5xx": 3}
        )
    assert [samples.get(f"slipway_requests_total {n}xx") for n in range(1, 6)] == [None, 1, 1, 1, 3]


async def test_request_of_a_client_that_hangs_up_is_received_but_not_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT, seconds=5) as counts:
        request = asyncio.create_task(ask(gateway, session))
        while not counts["active"]:
            await asyncio.sleep(0.005)
        request.cancel()
        samples = await reader.until(s_received_total=1, s_in_flight=0)
    assert [name for name in samples if name.startswith("slipway_requests_total")] == []
    assert samples.get("slipway_request_duration_seconds_count", 0) == 0


async def test_request_retried_on_a_second_replica_is_counted_once(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, slices=[endpoint_slice("digits-a", [REPLICA, NOBODY])]) as (
            gateway,
            reader,
            session,
        ),
        backend(REPLICA, PORT),
    ):
        assert {await ask(gateway, session) for _ in range(40)} == {200}
        await reader.until(s_received_total=40, s_in_flight=0, **{"s_total 2xx": 40})


async def test_request_is_received_by_the_arm_of_its_first_try_when_other_arms_are_tried(
    tmp_path: Path,
) -> None:
    arms = route("digits", [("a", 5000), ("b", 5000)], sticky={"header": "x-user-id", "salt": "spring"})
    arms["spec"]["retries"] = {"on": ["Unsent", "Lost"], "attempts": 3, "acrossPredictors": True}
    both = [endpoint_slice("digits-a", [REPLICA]), endpoint_slice("digits-b", [OTHER])]
    async with serving(tmp_path, route=arms, slices=both) as (gateway, reader, _):
        reader.know(arms)
        async with aiohttp.ClientSession(headers={"x-user-id": "u"}) as session:
            assert {await ask(gateway, session) for _ in range(3)} == {503}, "nobody listens"
        received = {
            name: count for name, count in (await reader.read_all()).items() if "requests_received" in name
        }
    assert sorted(received.values()) == [0, 3], received


async def test_request_that_reached_no_replica_is_counted_once_as_failed(tmp_path: Path) -> None:
    async with serving(tmp_path, slices=[endpoint_slice("digits-a", [NOBODY])]) as (gateway, reader, session):
        assert {await ask(gateway, session) for _ in range(5)} == {503}
        await reader.until(s_received_total=5, s_in_flight=0, **{"s_total 5xx": 5})


async def test_request_that_a_replica_did_not_answer_is_counted_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), answering(lambda: b""):
        assert {await ask(gateway, session) for _ in range(5)} == {503}
        await reader.until(s_received_total=5, s_in_flight=0, **{"s_total 5xx": 5})


async def test_request_at_zero_without_an_activator_is_counted_as_received(tmp_path: Path) -> None:
    at_zero = route("digits", [("a", 10_000)], on_demand="a")
    async with serving(tmp_path, route=at_zero, slices=[]) as (gateway, reader, session):
        assert {await ask(gateway, session) for _ in range(4)} == {503}
        await reader.until(s_received_total=4, s_in_flight=0, **{"s_total 5xx": 4})


async def test_counts_never_decrease_under_load(tmp_path: Path) -> None:
    slices = [endpoint_slice("digits-a", [REPLICA, NOBODY])]
    async with serving(tmp_path, slices=slices) as (gateway, reader, session), backend(REPLICA, PORT):
        deadline = clock.monotonic() + 1.5

        async def send_requests() -> int:
            count = 0
            while clock.monotonic() < deadline:
                await ask(gateway, session)
                count += 1
            return count

        clients = [asyncio.create_task(send_requests()) for _ in range(8)]
        totals = []
        while clock.monotonic() < deadline:
            samples = await reader.read()
            totals.append(samples.get("slipway_requests_received_total", 0))
        total = sum(await asyncio.gather(*clients))
        await reader.until(s_received_total=total, s_in_flight=0)
    assert totals == sorted(totals)
    assert len(set(totals)) > 3


async def test_pages_read_in_quick_succession_share_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        await ask(gateway, session)
        await reader.until(s_received_total=1)
        monkeypatch.setattr(collector, "FRESH_SECONDS", 60.0)
        timestamp = "slipway_gateway_reading_timestamp_seconds"
        first_reading = (await reader.read_all())[timestamp]
        assert (await reader.read_all())[timestamp] == first_reading


async def test_restarted_envoy_counts_from_zero_and_reports_its_start_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        for _ in range(7):
            await ask(gateway, session)
        await reader.until(s_received_total=7)
        old_samples = await reader.read_all()
        running = gateway.process.running()
        assert running is not None
        processes.send_signal(running.process, signal.SIGKILL)
        while gateway.process.running() is not None:
            await asyncio.sleep(0.01)
        samples_while_down = await reader.read_all()
        assert samples_while_down == old_samples, (
            "without Envoy the page keeps the counts and the time of the last reading"
        )
        gateway.process.start(gateway.config())
        await gateway.xds.wait_ready(20)
        await gateway.xds.wait_acknowledged()
        async with asyncio.timeout(10):
            while await ask(gateway, session) != 200:
                await asyncio.sleep(0.01)
        new_samples = await reader.read_all()
    started, read = "slipway_envoy_start_time_seconds", "slipway_gateway_reading_timestamp_seconds"
    assert new_samples[started] > old_samples[started]
    assert new_samples[read] > old_samples[read]
    assert new_samples["slipway_requests_received_total " + " ".join(LABELS.values())] < 7


async def test_removed_revision_leaves_the_page_and_counts_from_zero_when_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT), backend(OTHER, PORT):
        for _ in range(3):
            await ask(gateway, session)
        await reader.until(s_received_total=3)
        replacement = route("digits", [("b", 10_000)])
        await gateway.serve([replacement], [endpoint_slice("digits-b", [OTHER])])
        reader.know(replacement)
        assert await reader.read() == {}
        await ask(gateway, session)
        samples = parsed(await reader.signals.page(), **{**LABELS, "predictor": "b", "revision": "digits-b"})
        assert samples["slipway_requests_received_total"] == 1
        await gateway.serve([DIGITS], UP)
        reader.know(DIGITS)
        await ask(gateway, session)
        await reader.until(s_received_total=1, _duration_seconds_count=1, **{"s_total 2xx": 1})


async def test_duration_begins_with_the_end_of_the_request(tmp_path: Path) -> None:
    async def slow_body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(0.4)
        yield b"}"

    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        async with session.post(f"{gateway.url}/default/digits/v2/x", data=slow_body()) as response:
            assert response.status == 200
        samples = await reader.until(_duration_seconds_count=1)
    assert samples["slipway_request_duration_seconds_bucket 0.25"] == 1


async def test_answers_of_many_services_are_counted_by_all_workers(tmp_path: Path) -> None:
    names = [f"service-{number}" for number in range(150)]
    routes = [route(name, [("a", 10_000)]) for name in names]
    slices = [endpoint_slice(f"{name}-a", [REPLICA]) for name in names]
    async with gateway_rig(tmp_path, concurrency=2) as gateway, backend(REPLICA, PORT):
        await gateway.serve(routes, slices)
        reader = Reader(gateway)
        for item in routes:
            reader.know(item)
        for _ in range(4):
            async with aiohttp.ClientSession() as session:  # a connection of any worker
                for name in names:
                    async with session.get(f"{gateway.url}/default/{name}/v2/x") as response:
                        assert response.status == 200
        async with asyncio.timeout(10):
            while True:
                samples = await reader.read_all()
                answers = [v for name, v in samples.items() if name.startswith("slipway_requests_total")]
                if sum(answers) == 4 * len(names):
                    break
    assert answers == [4] * len(names)


async def test_answer_counts_outlive_the_gateway_that_started_envoy(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        for _ in range(3):
            await ask(gateway, session)
        await reader.until(_duration_seconds_count=3)
        await ask(gateway, session)
        await Reader(gateway).until(_duration_seconds_count=4, s_received_total=4, **{"s_total 2xx": 4})


async def test_counts_of_a_revision_that_is_back_outlive_the_gateway(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        for _ in range(3):
            await ask(gateway, session)
        await reader.until(_duration_seconds_count=3)
        await gateway.serve([], [])
        await reader.read_all()
        await gateway.serve([DIGITS], [endpoint_slice("digits-a", [REPLICA])])
        await ask(gateway, session)
        expected = {"_duration_seconds_count": 1.0, "s_received_total": 1.0, "s_total 2xx": 1.0}
        await reader.until(**expected)
        await Reader(gateway).until(**expected)


async def test_page_is_unavailable_before_all_routes_are_known(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as gateway:
        with pytest.raises(errors.Unavailable):
            await collector_of(gateway).page()


async def test_page_is_served_at_the_port_in_the_data_directory(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, reader, session), backend(REPLICA, PORT):
        await ask(gateway, session)
        data_dir = gateway.data_dir
        pages = {metrics.PATH: reader.signals.page}
        note = data_dir.metrics("gateway")
        async with metrics.served(pages, note, "127.0.0.1", 0) as page:
            assert metrics.pages(data_dir.pages) == [page]
            assert page.component == "gateway"
            async with session.get(page.url) as response:
                assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
                assert parsed(await response.text(), **LABELS)["slipway_requests_received_total"] == 1
            async with session.get(page.url.removesuffix("metrics")) as response:
                assert response.status == 404
        async with metrics.served(pages, note, "127.0.0.1", 0) as second:
            assert second.port == page.port
