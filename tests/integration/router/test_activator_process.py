"""The activator with an API: its sockets, its demand reports and their timing, and removed backends."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving import errors
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import kinds, names
from serving.router.activator.forwarding import BackendListener
from serving.router.activator.process import Activator, connections
from serving.router.plan.service import socket_name
from serving.settings import RuntimeSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import until
from tests.rig.machine.addresses import own
from tests.rig.machine.tcp_server import tcp_server
from tests.rig.servers.gateway import backend, endpoint_slice, in_background, route

PORT = 8080
REPLICA = own(65)
LABEL = {names.ON_DEMAND_LABEL: "true"}


class ActivatorRig:
    """An API, an activator, and clients that connect as Envoy does."""

    activator: Activator

    def __init__(self, root: Path, api: FakeKube) -> None:
        self.data_dir = DataDir(root)
        self.api = api

    def socket(self, arm: str = "a") -> Path:
        return self.data_dir.activator / socket_name(f"default/digits-{arm}/8080")

    def route(self, arms: str = "a") -> None:
        route_object = route("digits", [(arms[0], 10_000)], unweighted=arms, on_demand=arms)
        for backend_entry in route_object["spec"]["backends"]:
            backend_entry["arm"] = "a"  # revisions of one arm
            backend_entry["autoscaler"] = "digits-a"
        if self.api.find(kinds.ROUTE):
            self.api.change(kinds.ROUTE, "default", "digits", {"spec": route_object["spec"]})
        else:
            meta = {"name": "digits", "namespace": "default", "labels": LABEL}
            self.api.add(kinds.ROUTE, {"metadata": meta, "spec": route_object["spec"]})

    def ready(self, arm: str = "a") -> None:
        slice_object = endpoint_slice(f"digits-{arm}", [REPLICA])
        slice_object["endpoints"][0]["targetRef"] = {"kind": "Pod", "name": f"digits-{arm}-0"}
        slice_object["metadata"] = {
            "name": f"digits-{arm}-1",
            "namespace": "default",
            "labels": {**slice_object["metadata"]["labels"], **LABEL},
        }
        self.api.add(kinds.ENDPOINT_SLICE, slice_object)

    def demand(self) -> Object:
        (autoscaler,) = self.api.find(kinds.AUTOSCALER)
        entries = (autoscaler.get("status") or {}).get("demand") or [{}]
        return dict(entries[0])

    def ask(self, arm: str = "a", body: Any = b"x") -> asyncio.Task[tuple[int, Any]]:
        async def post() -> tuple[int, Any]:
            connector = aiohttp.UnixConnector(str(self.socket(arm)))
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.post("http://digits/v2/x", data=body) as response,
            ):
                return response.status, await response.json(content_type=None)

        return asyncio.create_task(post())


@contextlib.asynccontextmanager
async def activator_rig(root: Path, **status: Any) -> AsyncIterator[ActivatorRig]:
    """Args: status: initial status of the Autoscaler."""
    api = FakeKube()
    rig = ActivatorRig(root, api)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    meta = {"name": "digits-a", "namespace": "default"}
    api.add(kinds.AUTOSCALER, {"metadata": meta, "spec": {"scaleTargetRef": target}, "status": status})
    rig.route()
    rig.data_dir.activator.mkdir()
    async with connections(Settings(), rig.data_dir.pod_sockets) as session:
        rig.activator = Activator(api.client("activator"), session, rig.data_dir, Settings())
        async with in_background(rig.activator.run()):
            await until(rig.socket().exists)
            yield rig


async def test_demand_and_its_end_are_reported_at_once_with_the_wake_phases(
    tmp_path: Path,
) -> None:
    async with activator_rig(tmp_path) as rig, backend(REPLICA, PORT):
        requests = [rig.ask() for _ in range(5)]
        await until(lambda: rig.demand().get("inFlight"))
        rig.ready()
        assert {status for status, _ in await asyncio.gather(*requests)} == {200}
        await until(lambda: rig.demand()["inFlight"] == 0 and "lastWake" in rig.demand())
        demand = rig.demand()
        assert demand["reporter"] == "activator-local"
        assert demand["lastWake"]["pod"] == "digits-a-0"
        assert demand["lastWake"]["total"] > 0
        assert demand["lastRequestTime"] >= demand["lastWake"]["acceptedAt"]


def samples_of(rig: ActivatorRig, arm: str = "a") -> dict[str, float]:
    """Return the samples of one revision, by name; of a histogram only count and sum."""
    page = rig.activator._metrics.page()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels
        == {"namespace": "default", "inference": "digits", "predictor": "a", "revision": f"digits-{arm}"}
    }


async def test_held_requests_and_their_waits_are_counted_by_revision(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig, backend(REPLICA, PORT):
        assert samples_of(rig) == {}
        requests = [rig.ask() for _ in range(5)]
        await until(lambda: samples_of(rig).get("slipway_requests_held") == 5)
        assert samples_of(rig)["slipway_requests_held_total"] == 5
        await asyncio.sleep(0.1)
        rig.ready()
        await asyncio.gather(*requests)
        samples = samples_of(rig)
        assert (samples["slipway_requests_held"], samples["slipway_request_held_seconds_count"]) == (0, 5)
        assert 0.5 <= samples["slipway_request_held_seconds_sum"] < 10
        await rig.ask()
        assert samples_of(rig)["slipway_requests_held_total"] == 5, "a replica was ready"


async def test_removed_revision_leaves_the_metrics_page(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig:
        request = rig.ask()
        await until(lambda: samples_of(rig).get("slipway_requests_held") == 1)
        request.cancel()
        await until(lambda: samples_of(rig).get("slipway_requests_held") == 0)
        rig.route("b")
        await until(lambda: samples_of(rig) == {})


async def test_demand_reports_are_limited_in_rate(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig:
        writes_before = len(rig.api.writes)
        requests = [rig.ask() for _ in range(40)]
        await until(lambda: rig.demand().get("inFlight") == 40)
        assert len(rig.api.writes) - writes_before <= 3
        for task in requests:
            task.cancel()
        await until(lambda: rig.demand()["inFlight"] == 0)


async def test_failed_demand_report_is_retried_while_requests_wait(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig, backend(REPLICA, PORT):
        for _ in range(3):
            rig.api.fail_next(errors.Unavailable("away"))
        request = rig.ask()
        await until(lambda: rig.demand().get("inFlight") == 1)
        rig.ready()
        assert (await request)[0] == 200


async def test_demand_of_a_killed_activator_is_reset_by_its_successor(tmp_path: Path) -> None:
    async with activator_rig(tmp_path, demand=[{"reporter": "activator-local", "inFlight": 7}]) as rig:
        await until(lambda: rig.demand()["inFlight"] == 0)


async def test_idle_connection_is_closed_before_the_replica_would_close_it(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\nx")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull")
        assert await reader.read() == b""
        closed.set()

    async with activator_rig(tmp_path) as rig, tcp_server(answer, REPLICA, PORT):
        rig.ready()
        for _ in range(2):
            assert (await rig.ask())[0] == 200
        await asyncio.wait_for(closed.wait(), RuntimeSettings().idle_seconds / 3)


async def test_requests_follow_their_arm_to_its_next_revision(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig, backend(REPLICA, PORT):
        request = rig.ask()
        await until(lambda: rig.demand().get("inFlight") == 1)
        rig.route("ab")
        await until(rig.socket("b").exists)
        rig.route("b")
        await until(lambda: not rig.socket("a").exists())
        assert rig.demand()["inFlight"] == 1
        rig.ready("b")
        assert (await request)[0] == 200


async def test_request_whose_body_is_slow_follows_its_arm_to_its_next_revision(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        await until(lambda: not rig.socket("a").exists())
        yield b"x"

    async with activator_rig(tmp_path) as rig, backend(REPLICA, PORT):
        request = rig.ask(body=body())
        await until(lambda: rig.demand().get("inFlight") == 1)
        rig.route("b")
        await until(rig.socket("b").exists)
        rig.ready("b")
        assert (await request)[0] == 200


async def test_requests_to_a_deleted_service_are_answered_at_once(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig:
        request = rig.ask()
        await until(lambda: rig.demand().get("inFlight") == 1)
        rig.api.remove(kinds.ROUTE, "default", "digits")
        status, body = await request
        assert (status, body["reason"]) == (503, "BackendGone")
        await until(lambda: not rig.socket().exists())
        rig.api.remove(kinds.AUTOSCALER, "default", "digits-a")
        await until(lambda: not rig.activator._demand._reported and not rig.activator._scaled_by)


@pytest.mark.parametrize("deleted", ["digits", "older", "newer"])
async def test_requests_are_held_for_the_oldest_route_that_is_left_when_routes_share_a_service(
    tmp_path: Path, deleted: str
) -> None:
    async with activator_rig(tmp_path) as rig, backend(REPLICA, PORT):
        (digits,) = rig.api.find(kinds.ROUTE)
        for name, created in (("newer", "2999-01-01T00:00:00Z"), ("older", "1999-01-01T00:00:00Z")):
            meta = {"name": name, "namespace": "default", "labels": LABEL}
            rig.api.add(kinds.ROUTE, {"metadata": meta, "spec": digits["spec"] | {"inference": name}})
            rig.api.change(kinds.ROUTE, "default", name, {"metadata": {"creationTimestamp": created}})
        await until(lambda: inferences_of(rig) == ["older"])
        request = rig.ask()
        await until(lambda: rig.demand().get("inFlight") == 1)
        rig.api.remove(kinds.ROUTE, "default", deleted)
        left = "digits" if deleted == "older" else "older"
        await until(lambda: inferences_of(rig) == [left])
        more = rig.ask()
        await until(lambda: rig.demand()["inFlight"] == 2)
        rig.ready()
        assert {status for status, _ in await asyncio.gather(request, more)} == {200}
        for name in {"digits", "older", "newer"} - {deleted}:
            assert rig.socket().exists()
            rig.api.remove(kinds.ROUTE, "default", name)
        await until(lambda: not rig.socket().exists())
        await until(lambda: not rig.activator._of_route and not rig.activator._entries)


def inferences_of(rig: ActivatorRig) -> list[str]:
    """Return the Inferences that the backends on demand belong to."""
    return [entry.labels.inference for entry in rig.activator._entries.values()]


async def test_a_backend_is_opened_again_when_its_socket_could_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = BackendListener.open
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))] * 2

    async def open_later(listener: BackendListener) -> None:
        if listener.backend.name.startswith("default/digits-b/") and failures:
            raise failures.pop()
        await opened(listener)

    monkeypatch.setattr(BackendListener, "open", open_later)
    async with activator_rig(tmp_path) as rig:
        rig.route("bc")
        await until(rig.socket("c").exists)
        await until(rig.socket("b").exists)
        request = rig.ask("b")
        await until(lambda: rig.demand().get("inFlight") == 1)
        request.cancel()


async def test_held_requests_are_answered_when_the_activator_stops(tmp_path: Path) -> None:
    async with activator_rig(tmp_path) as rig:
        request = rig.ask()
        await until(lambda: rig.demand().get("inFlight") == 1)
    status, body = await request
    assert (status, body["reason"]) == (503, "ActivatorStopping")
    assert rig.demand() == {}, "its report would hold replicas for ever"


async def test_first_request_of_a_wake_is_finished_when_the_activator_stops_before_its_body_ends(
    tmp_path: Path,
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        await until(lambda: not rig.socket().exists(), "the activator stops")
        yield b"x"

    async with backend(REPLICA, PORT), activator_rig(tmp_path) as rig:
        request = rig.ask(body=body())
        await until(lambda: rig.demand().get("inFlight") == 1)
        rig.ready()
        (held_backend,) = rig.activator._entries
        await until(lambda: held_backend.queue.replicas != ())
    assert (await request)[0] == 200
