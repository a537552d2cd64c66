import asyncio
import contextlib
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving import errors
from serving.resources.names import ARM_HEADER, SERVED_VERSION_HEADER
from serving.router.plan.service import NOTHING_PROVEN
from serving.router.xds.server import Rejected
from tests.rig.machine.addresses import own
from tests.rig.servers.gateway import GatewayRig, backend, endpoint_slice, gateway_rig, route

STABLE, CANARY = own(0), own(1)
SLICES = [endpoint_slice("digits-stable", [STABLE]), endpoint_slice("digits-canary", [CANARY])]
STICKY = {"header": "x-user-id", "salt": "spring"}


def digits(stable: int = 9000, **kwargs: Any) -> dict[str, Any]:
    return route("digits", [("stable", stable), ("canary", 10_000 - stable)], **kwargs)


@contextlib.asynccontextmanager
async def replicas() -> Any:
    async with backend(STABLE, 8080, name="stable"), backend(CANARY, 8080, name="canary"):
        yield


async def get(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any, Any]:
    async with session.get(url, headers={k.replace("_", "-"): v for k, v in headers.items()}) as response:
        return response.status, response.headers, await response.json(content_type=None)


async def test_service_is_reached_by_host_or_path_and_names_the_serving_revision(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas(), aiohttp.ClientSession() as session:
        await rig.serve([digits(10_000 - 1)], SLICES)
        for url, host in (
            (f"{rig.url}/default/digits/v2/health/ready?a=1", "localhost"),
            (f"{rig.url}/v2/health/ready?a=1", "digits.default.slipway.local"),
            (f"{rig.url}/v2/health/ready?a=1", "digits.default.slipway.local:8080"),
        ):
            status, headers, body = await get(session, url, host=host, x_request_id="mine")
            assert (status, body["path"]) == (200, "/v2/health/ready?a=1")
            assert headers[ARM_HEADER] == body["name"]
            assert headers[SERVED_VERSION_HEADER] == f"digits-{body['name']}-v1"
            assert headers["x-request-id"] == "mine"


ENVOY_HEADERS = [
    f"x-envoy-{name}"
    for name in (
        "expected-rq-timeout-ms",
        "force-trace",
        "hedge-on-per-try-timeout",
        "internal",
        "ip-tags",
        "max-retries",
        "original-url",
        "retriable-header-names",
        "retriable-status-codes",
        "retry-grpc-on",
        "retry-on",
        "upstream-alt-stat-name",
        "upstream-rq-per-try-timeout-ms",
        "upstream-stream-duration-ms",
    )
]
"""Request headers that control Envoy's router and connection manager: envoyproxy.io, "HTTP headers"."""


async def test_a_client_cannot_choose_its_arm_its_host_or_our_timeouts(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas(), aiohttp.ClientSession() as session:
        await rig.serve([route("digits", [("stable", 10_000)], unweighted=["canary"])], SLICES)
        forged = {
            ARM_HEADER: "canary",
            "x-gateway-destination-endpoint": f"{CANARY}:8080",
            "x-envoy-original-dst-host": f"{CANARY}:8080",
            "x-slipway-caller": "me",
        }
        controls = {"x-envoy-upstream-rq-timeout-ms": "1", **dict.fromkeys(ENVOY_HEADERS, "1")}
        status, headers, body = await get(session, f"{rig.url}/default/digits/v2/x", **forged, **controls)
        assert (status, headers[ARM_HEADER], body["name"]) == (200, "stable", "stable")
        assert sorted(set(controls) & set(body["headers"])) == []


async def test_dot_segments_cannot_reach_another_service(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas():
        second_route = route("other", [("stable", 10_000)])
        second_route["spec"]["backends"][0]["service"] = "digits-canary"
        await rig.serve([route("digits", [("stable", 10_000)]), second_route], SLICES)
        response = await rig.raw(b"GET /default/digits/../other/v2/x HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"canary" in response
        assert b'"path":"/v2/x"' in response


async def test_unknown_service_is_404_and_unready_service_503_as_json(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, aiohttp.ClientSession() as session:
        await rig.serve([digits()], [])
        status, headers, body = await get(session, f"{rig.url}/default/none/v2/x")
        assert (status, headers["content-type"]) == (404, "application/json")
        assert "no service" in body["error"]
        status, headers, body = await get(session, f"{rig.url}/default/digits/v2/x")
        assert (status, headers["retry-after"]) == (503, "1")
        message = "default/digits: no replica of this service is ready"
        assert body == {"error": message, "reason": "Unavailable"}


async def test_a_route_without_backends_is_acknowledged_when_envoy_has_had_no_cluster(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas(), aiohttp.ClientSession() as session:
        async with asyncio.timeout(20):
            await rig.serve([route("digits", [])], [])
        status, _, body = await get(session, f"{rig.url}/default/digits/v2/x")
        assert (status, body["error"]) == (503, f"default/digits: {NOTHING_PROVEN}")
        async with asyncio.timeout(20):
            await rig.serve([digits()], SLICES)
        assert (await get(session, f"{rig.url}/default/digits/v2/x"))[0] == 200


async def test_a_client_that_trickles_its_headers_is_cut_off(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path, header_seconds=0.5) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.settings.gateway.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n")
        status_line = asyncio.ensure_future(reader.readline())
        async with asyncio.timeout(10):
            while not status_line.done():
                writer.write(b"x-more: 1\r\n")
                await asyncio.sleep(0.05)
        assert status_line.result().split()[1] == b"408"
        writer.close()


async def test_a_slow_answer_is_not_cut_by_the_limit_of_headers(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path, header_seconds=0.3) as rig,
        backend(STABLE, 8080, seconds=1.0),
        aiohttp.ClientSession() as session,
    ):
        await rig.serve([route("digits", [("stable", 10_000)])], SLICES)
        status, _, _ = await get(session, f"{rig.url}/default/digits/v2/x")
        assert status == 200


async def test_caller_without_the_header_gets_a_sticky_identity(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas():
        await rig.serve([digits(5000, sticky=STICKY)], SLICES)
        arm_counts: Counter[str] = Counter()
        for _ in range(30):
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
                url = f"{rig.url}/default/digits/v2/x"
                _, first_headers, body = await get(browser, url)
                arms = {(await get(browser, url))[1][ARM_HEADER] for _ in range(4)}
                assert arms == {first_headers[ARM_HEADER]}
                assert "x-slipway-caller" not in body["headers"]
            async with aiohttp.ClientSession() as cookieless:  # the id is also valid in the header
                _, headers, _ = await get(cookieless, url, x_user_id=first_headers["x-slipway-caller"])
                assert headers[ARM_HEADER] == first_headers[ARM_HEADER]
                assert "set-cookie" not in headers
            arm_counts[first_headers[ARM_HEADER]] += 1
    assert len(arm_counts) == 2


async def test_no_request_fails_when_a_replica_drains_and_weights_change(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, contextlib.AsyncExitStack() as leaving_replica, replicas():
        leaving = own(2)
        await leaving_replica.enter_async_context(backend(leaving, 8080, name="leaving", seconds=0.05))
        with_leaving = [endpoint_slice("digits-stable", [STABLE, leaving]), SLICES[1]]
        await rig.serve([digits()], with_leaving)
        statuses: Counter[int] = Counter()
        stop = asyncio.Event()

        answered = [0] * 8

        async def load(session: aiohttp.ClientSession, client: int) -> None:
            while not stop.is_set():
                status, _, _ = await get(session, f"{rig.url}/default/digits/v2/x")
                statuses[status] += 1
                answered[client] += 1

        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            for client in range(len(answered)):
                group.create_task(load(session, client))
            for _ in range(10):
                await rig.serve([digits()], SLICES)
                await rig.serve([digits(2000)], with_leaving)
                await rig.serve([digits(2000)], SLICES[1:])
                await rig.serve([digits()], SLICES)
            # As a node stops a replica: after the requests that were sent to it before it left.
            before = list(answered)
            while min(now - then for now, then in zip(answered, before, strict=True)) < 2:
                await asyncio.sleep(0.005)
            await leaving_replica.aclose()
            served = statuses.total()
            while statuses.total() < served + 200:
                await asyncio.sleep(0.01)
            stop.set()
    assert set(statuses) == {200}


async def test_open_stream_survives_changes_of_clusters_and_routes(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as rig,
        backend(STABLE, 8080, name="slow", seconds=1.0),
        aiohttp.ClientSession() as s,
    ):
        await rig.serve([route("digits", [("stable", 10_000)])], SLICES)
        running = asyncio.create_task(get(s, f"{rig.url}/default/digits/v2/x"))
        while not await rig.admin.active():
            await asyncio.sleep(0.005)
        await rig.serve([], [])
        assert not running.done()
        assert (await running)[0] == 200
        assert (await get(s, f"{rig.url}/default/digits/v2/x"))[0] == 404


async def test_the_private_listener_reaches_one_backend_without_weight(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas():
        await rig.serve([route("digits", [("stable", 10_000)], unweighted=["canary"])], SLICES)
        socket = rig.data_dir.probe_socket
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as private:
            status, _, body = await get(private, "http://x/default/digits-canary/v2/health/ready")
            assert (status, body["name"], body["path"]) == (200, "canary", "/v2/health/ready")
            assert (await get(private, "http://x/default/none/v2/health/ready"))[0] == 404


async def test_rejected_update_raises_the_reason_and_keeps_the_last_good_one(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig, replicas(), aiohttp.ClientSession() as session:
        await rig.serve([digits()], SLICES)
        rejected = [endpoint_slice("digits-stable", ["not an address"])]
        with pytest.raises(Rejected, match="malformed IP address"):
            await rig.serve([digits()], rejected)
        assert (await get(session, f"{rig.url}/default/digits/v2/x"))[0] == 200
        await rig.serve([digits()], SLICES)
        assert (await get(session, f"{rig.url}/default/digits/v2/x"))[0] == 200


async def test_port_in_use_is_a_user_error(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path / "one") as first:
        second = GatewayRig(tmp_path / "two", first.settings)
        with pytest.raises(errors.UserError, match=r"cannot listen on 127\.0\.0\.1"):
            await second.start()


async def test_stopping_lets_requests_in_flight_finish(tmp_path: Path) -> None:
    async with (
        gateway_rig(tmp_path) as rig,
        backend(STABLE, 8080, seconds=0.6),
        aiohttp.ClientSession() as session,
    ):
        await rig.serve([route("digits", [("stable", 10_000)])], SLICES)
        running = asyncio.create_task(get(session, f"{rig.url}/default/digits/v2/x"))
        while not await rig.admin.active():
            await asyncio.sleep(0.005)
        await rig.stop(drain_seconds=5.0)
        assert (await running)[0] == 200
        assert rig.process.running() is None
