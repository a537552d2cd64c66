import asyncio
import contextlib
import json
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving import errors, metrics
from serving.data_dir import DataDir
from serving.resources import kinds
from serving.router import gateway
from serving.router.envoy import admin
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.settings import Settings
from serving.system import processes
from serving.system.process_exit import has_ended_within
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import until
from tests.rig.machine.addresses import own
from tests.rig.machine.ports import free_port
from tests.rig.servers.gateway import backend, endpoint_slice, route, running_gateway, settings_for_test

STABLE = own(4)


def gateway_of(
    root: Path, kube: FakeKube, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AbstractAsyncContextManager[None]:
    async def connect(_: Path, *, component: str) -> FakeKube:
        return kube

    monkeypatch.setattr(gateway, "connect_eventually", connect)
    return running_gateway(DataDir(root), settings)


def entry(kube: FakeKube, name: str = "digits") -> dict[str, Any]:
    routes = [r for r in kube.find(kinds.ROUTE) if r["metadata"]["name"] == name]
    gateways = (routes[0].get("status") or {}).get("gateways") or [{}]
    return dict(gateways[0])


def new_route(name: str, weights: list[tuple[str, int]], **kwargs: Any) -> dict[str, Any]:
    route_object = route(name, weights, **kwargs)
    route_object["metadata"] = {"name": name, "namespace": "default"}
    return route_object


def new_slice(service: str, addresses: list[str]) -> dict[str, Any]:
    slice_object = endpoint_slice(service, addresses)
    del slice_object["metadata"]["resourceVersion"]
    return slice_object


async def test_new_envoy_answers_503_and_no_404_until_the_routes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, settings, has_api = FakeKube(), settings_for_test(), asyncio.Event()
    await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
    await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))

    async def connect(_: Path, *, component: str) -> FakeKube:
        await has_api.wait()
        return kube

    monkeypatch.setattr(gateway, "connect_eventually", connect)
    url = f"http://127.0.0.1:{settings.gateway.port}/default/digits/v2/x"
    statuses: list[int] = []
    try:
        async with (
            running_gateway(DataDir(tmp_path), settings),
            backend(STABLE, 8080),
            aiohttp.ClientSession() as session,
            asyncio.timeout(30),
        ):
            while statuses[-1:] != [200]:
                with contextlib.suppress(aiohttp.ClientConnectionError):  # Envoy does not listen yet
                    async with session.get(url) as answer:
                        statuses.append(answer.status)
                        if answer.status == 503:
                            assert answer.headers["retry-after"] == "1"
                            assert "has just started" in (await answer.json())["error"]
                            has_api.set()
                await asyncio.sleep(0.005)
    finally:
        await gateway.stop_everything(DataDir(tmp_path), settings)
    assert statuses[0] == 503
    assert set(statuses) == {503, 200}


async def test_route_status_reports_effective_weights_once_envoy_serves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, settings = FakeKube(), settings_for_test()
    data_dir = DataDir(tmp_path)
    try:
        async with gateway_of(tmp_path, kube, settings, monkeypatch), backend(STABLE, 8080):
            await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
            await kube.create(kinds.ROUTE, new_route("digits", [("stable", 9000), ("canary", 1000)]))
            await until(lambda: entry(kube).get("weights"))
            assert entry(kube) == {
                "name": "local",
                "acceptedGeneration": 1,
                "address": f"127.0.0.1:{settings.gateway.port}",
                "weights": [{"arm": "canary", "percent": 0.0}, {"arm": "stable", "percent": 100.0}],
                "message": "",
            }
            url = f"http://127.0.0.1:{settings.gateway.port}/default/digits/v2/x"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                assert answer.status == 200
            kube.change(kinds.ROUTE, "default", "digits", {"spec": {"segments": []}})
            await until(lambda: "proven" in entry(kube)["message"])
            await until(lambda: kube.find(kinds.LEASE))
            writes = len(kube.writes)
            kube.change(kinds.ROUTE, "default", "digits", {"metadata": {"labels": {"a": "b"}}})
            await asyncio.sleep(0.2)
            assert len(kube.writes) == writes
    finally:
        await gateway.stop_everything(data_dir, settings)


@pytest.mark.parametrize("rejected", ["rejected", "very-bad"], ids=["first", "last"])
async def test_route_rejected_by_envoy_reports_the_reason_and_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rejected: str
) -> None:
    kube, settings = FakeKube(), settings_for_test()
    try:
        for name, address in ((rejected, "300.1.2.3"), ("digits", STABLE), ("more", STABLE)):
            kube.add(kinds.ENDPOINT_SLICE, new_slice(f"{name}-stable", [STABLE]))
            # The API would refuse this address, so it is written past validation for Envoy to reject it.
            endpoints = [{"addresses": [address], "conditions": {"ready": True}}]
            kube.change(kinds.ENDPOINT_SLICE, "default", f"{name}-stable-1", {"endpoints": endpoints})
            await kube.create(kinds.ROUTE, new_route(name, [("stable", 10_000)]))
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: "malformed IP address" in entry(kube, rejected).get("message", ""))
            await until(lambda: entry(kube, "digits").get("acceptedGeneration") == 1)
            await until(lambda: entry(kube, "more").get("acceptedGeneration") == 1)
            assert entry(kube, rejected)["acceptedGeneration"] == 0
            await until(lambda: [e for e in kube.find(kinds.EVENT_V1) if e["type"] == "Warning"])
    finally:
        await gateway.stop_everything(DataDir(tmp_path), settings)


async def test_restarted_gateway_adopts_envoy_and_a_killed_envoy_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, settings = FakeKube(), settings_for_test()
    process = EnvoyProcess(DataDir(tmp_path), settings.gateway)
    try:
        await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
        await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: entry(kube).get("acceptedGeneration") == 1)
        first_envoy = process.running()
        assert first_envoy is not None, "Envoy must outlive the gateway's process"
        kube.change(kinds.ROUTE, "default", "digits", {"spec": {"segments": []}})
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: "proven" in entry(kube)["message"])
            assert process.running() == first_envoy
    finally:
        await gateway.stop_everything(DataDir(tmp_path), settings)


async def test_successor_of_an_adopted_envoy_answers_503_when_the_api_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, settings, data_dir = FakeKube(), settings_for_test(), DataDir(tmp_path)
    process = EnvoyProcess(data_dir, settings.gateway)
    url = f"http://127.0.0.1:{settings.gateway.port}/default/digits/v2/x"
    await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
    await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))
    try:
        with monkeypatch.context() as patch:
            async with gateway_of(tmp_path, kube, settings, patch):
                await until(lambda: entry(kube).get("acceptedGeneration") == 1)
        data_dir.kubeconfig.write_text(kubeconfig(f"http://127.0.0.1:{free_port()}"))
        adopted = process.running()
        assert adopted is not None
        async with (
            running_gateway(data_dir, settings),
            backend(STABLE, 8080),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            await asyncio.sleep(gateway.ROUTES_SECONDS + 0.5)
            async with session.get(url) as answer:
                assert answer.status == 200, "the adopted Envoy keeps its routes"
            processes.send_signal(adopted.process, signal.SIGKILL)
            await has_ended_within(adopted.process, 5)
            async with asyncio.timeout(gateway.ROUTES_SECONDS + 5), session.get(url) as answer:
                assert answer.status == 503
            assert process.running() != adopted
    finally:
        await gateway.stop_everything(data_dir, settings)


def kubeconfig(server: str) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    return json.dumps(content)


async def test_starting_envoy_is_adopted_when_its_gateway_ended_before_the_first_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: Path, *, component: str) -> FakeKube:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(gateway, "connect_eventually", never)
    monkeypatch.setattr(gateway, "ROUTES_SECONDS", 60.0)
    kube, settings = FakeKube(), settings_for_test()
    process = EnvoyProcess(DataDir(tmp_path), settings.gateway)
    await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
    await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))
    try:
        async with (
            running_gateway(DataDir(tmp_path), settings),
            admin.Admin(DataDir(tmp_path).admin_socket) as first,
        ):
            async with asyncio.timeout(20):
                while await state_of(first) not in admin.STARTING:
                    await asyncio.sleep(0.01)
        envoy = process.running()
        assert envoy is not None
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: entry(kube).get("acceptedGeneration") == 1)
            assert process.running() == envoy
    finally:
        await gateway.stop_everything(DataDir(tmp_path), settings)


async def state_of(envoy: admin.Admin) -> str:
    try:
        return await envoy.state()
    except errors.Unavailable:
        return ""


async def test_new_connections_wait_for_the_next_envoy_when_the_adopted_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, settings = FakeKube(), settings_for_test()
    process = EnvoyProcess(DataDir(tmp_path), settings.gateway)
    url = f"http://127.0.0.1:{settings.gateway.port}/default/digits/v2/x"
    await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
    await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))
    try:
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: entry(kube).get("acceptedGeneration") == 1)
        first_envoy = process.running()
        assert first_envoy is not None
        kube.change(kinds.ROUTE, "default", "digits", {"metadata": {"generation": 2}})
        async with backend(STABLE, 8080), gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: entry(kube).get("acceptedGeneration") == 2)
            assert processes.send_signal(first_envoy.process, signal.SIGKILL)
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                assert answer.status == 200
            assert process.running() not in (None, first_envoy)
    finally:
        await gateway.stop_everything(DataDir(tmp_path), settings)


async def test_hung_envoy_is_replaced_when_a_gateway_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ADOPTION_SECONDS", 0.2)
    monkeypatch.setattr(admin, "TIMEOUT_SECONDS", 0.2)
    kube, settings = FakeKube(), settings_for_test()
    process = EnvoyProcess(DataDir(tmp_path), settings.gateway)
    await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
    await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))
    try:
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: entry(kube).get("acceptedGeneration") == 1)
        hung = process.running()
        assert hung is not None
        assert processes.send_signal(hung.process, signal.SIGSTOP)
        kube.change(kinds.ROUTE, "default", "digits", {"spec": {"segments": []}})
        async with gateway_of(tmp_path, kube, settings, monkeypatch):
            await until(lambda: "proven" in entry(kube)["message"])
        assert process.running() not in (None, hung)
        assert not processes.is_alive(hung.process)
    finally:
        await gateway.stop_everything(DataDir(tmp_path), settings)


async def test_request_counts_survive_a_restart_of_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, settings, data_dir = FakeKube(), settings_for_test(), DataDir(tmp_path)
    url = f"http://127.0.0.1:{settings.gateway.port}/default/digits/v2/x"
    await kube.create(kinds.ENDPOINT_SLICE, new_slice("digits-stable", [STABLE]))
    await kube.create(kinds.ROUTE, new_route("digits", [("stable", 10_000)]))

    async def page(session: aiohttp.ClientSession) -> str:
        """Return the first page that is served: a gateway that has just started knows no Route."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, IndexError):
                async with session.get(metrics.pages(data_dir.pages)[0].url) as response:
                    if response.status == 200:
                        return await response.text()
            await asyncio.sleep(0.01)

    try:
        async with aiohttp.ClientSession() as session, backend(STABLE, 8080):
            async with gateway_of(tmp_path, kube, settings, monkeypatch):
                await until(lambda: entry(kube).get("acceptedGeneration"))
                for _ in range(3):
                    async with session.get(url) as response:
                        assert response.status == 200
                assert "slipway_requests_received_total" in await page(session)
            async with session.get(url) as response:
                assert response.status == 200
            async with gateway_of(tmp_path, kube, settings, monkeypatch), asyncio.timeout(10):
                labels = 'namespace="default",inference="digits",predictor="stable",revision="digits-stable"'
                assert f"slipway_requests_received_total{{{labels}}} 4\n" in await page(session)
    finally:
        await gateway.stop_everything(data_dir, settings)
