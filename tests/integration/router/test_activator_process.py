"""The activator with an API: what it listens on, what it reports and when, and what becomes of a backend that goes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from serving import errors
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import kinds, names
from serving.router.activator.process import Activator, connections
from serving.router.plan.service import Cluster
from serving.settings import RuntimeSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.addresses import own
from tests.rig.convergence import until
from tests.rig.gateway import backend, endpoint_slice, in_background, route

PORT = 8080
REPLICA = own(65)
LABEL = {names.ON_DEMAND_LABEL: "true"}


class World:
    """An API, an activator, and clients as Envoy is one."""

    activator: Activator

    def __init__(self, root: Path, api: FakeKube) -> None:
        self.data_dir = DataDir(root)
        self.api = api

    def socket(self, arm: str = "a") -> Path:
        return self.data_dir.activator / Cluster(f"default/digits-{arm}/8080", ()).socket

    def route(self, arms: str = "a") -> None:
        found = route("digits", [(arms[0], 10_000)], unweighted=arms, on_demand=arms)
        for each in found["spec"]["backends"]:
            each["arm"] = "a"  # revisions of one arm
            each["autoscaler"] = "digits-a"
        if self.api.find(kinds.ROUTE):
            self.api.change(kinds.ROUTE, "default", "digits", {"spec": found["spec"]})
        else:
            meta = {"name": "digits", "namespace": "default", "labels": LABEL}
            self.api.add(kinds.ROUTE, {"metadata": meta, "spec": found["spec"]})

    def ready(self, arm: str = "a") -> None:
        found = endpoint_slice(f"digits-{arm}", [REPLICA])
        found["endpoints"][0]["targetRef"] = {"kind": "Pod", "name": f"digits-{arm}-0"}
        found["metadata"] = {
            "name": f"digits-{arm}-1", "namespace": "default", "labels": {**found["metadata"]["labels"], **LABEL},
        }  # fmt: skip
        self.api.add(kinds.ENDPOINT_SLICE, found)

    def demand(self) -> Object:
        (found,) = self.api.find(kinds.AUTOSCALER)
        entries = (found.get("status") or {}).get("demand") or [{}]
        return dict(entries[0])

    def ask(self, arm: str = "a") -> asyncio.Task[tuple[int, Any]]:
        async def one() -> tuple[int, Any]:
            connector = aiohttp.UnixConnector(str(self.socket(arm)))
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.post("http://digits/v2/x", data=b"x") as answer,
            ):
                return answer.status, await answer.json(content_type=None)

        return asyncio.create_task(one())


@contextlib.asynccontextmanager
async def world(root: Path, **status: Any) -> AsyncIterator[World]:
    """Args: status: of the Autoscaler, from before."""
    api = FakeKube()
    found = World(root, api)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    meta = {"name": "digits-a", "namespace": "default"}
    api.add(kinds.AUTOSCALER, {"metadata": meta, "spec": {"scaleTargetRef": target}, "status": status})
    found.route()
    found.data_dir.activator.mkdir()
    async with connections(Settings()) as session:
        found.activator = Activator(api.client("activator"), session, found.data_dir, Settings())
        async with in_background(found.activator.run()):
            await until(found.socket().exists)
            yield found


async def test_demand_is_said_at_once_and_that_there_is_none_too_with_where_the_time_went(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here, backend(REPLICA, PORT):
        asked = [here.ask() for _ in range(5)]
        await until(lambda: here.demand().get("inFlight"))
        here.ready()
        assert {status for status, _ in await asyncio.gather(*asked)} == {200}
        await until(lambda: here.demand()["inFlight"] == 0 and "lastWake" in here.demand())
        said = here.demand()
        assert said["reporter"] == "activator-local"
        assert said["lastWake"]["pod"] == "digits-a-0"
        assert said["lastWake"]["total"] > 0
        assert said["lastRequestTime"] >= said["lastWake"]["acceptedAt"]


def counted(here: World, arm: str = "a") -> dict[str, float]:
    """The samples of one revision, by name; a histogram's count and sum alone."""
    page = here.activator._metrics.page()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels
        == {"namespace": "default", "inference": "digits", "predictor": "a", "revision": f"digits-{arm}"}
    }


async def test_who_waits_and_for_how_long_is_counted_by_revision(tmp_path: Path) -> None:
    async with world(tmp_path) as here, backend(REPLICA, PORT):
        assert counted(here) == {}
        asked = [here.ask() for _ in range(5)]
        await until(lambda: counted(here).get("slipway_requests_held") == 5)
        assert counted(here)["slipway_requests_held_total"] == 5
        await asyncio.sleep(0.1)
        here.ready()
        await asyncio.gather(*asked)
        found = counted(here)
        assert (found["slipway_requests_held"], found["slipway_request_held_seconds_count"]) == (0, 5)
        assert 0.5 <= found["slipway_request_held_seconds_sum"] < 10
        await here.ask()
        assert counted(here)["slipway_requests_held_total"] == 5, "a replica was ready"


async def test_a_revision_that_has_gone_is_counted_no_more(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        asked = here.ask()
        await until(lambda: counted(here).get("slipway_requests_held") == 1)
        asked.cancel()
        await until(lambda: counted(here).get("slipway_requests_held") == 0)
        here.route("b")
        await until(lambda: counted(here) == {})


async def test_how_many_wait_is_said_now_and_then_and_not_at_each(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        before = len(here.api.writes)
        asked = [here.ask() for _ in range(40)]
        await until(lambda: here.demand().get("inFlight") == 40)
        assert len(here.api.writes) - before <= 3
        for task in asked:
            task.cancel()
        await until(lambda: here.demand()["inFlight"] == 0)


async def test_a_report_that_the_api_does_not_take_is_tried_again_while_requests_wait(tmp_path: Path) -> None:
    async with world(tmp_path) as here, backend(REPLICA, PORT):
        for _ in range(3):
            here.api.fail_next(errors.Unavailable("away"))
        asked = here.ask()
        await until(lambda: here.demand().get("inFlight") == 1)
        here.ready()
        assert (await asked)[0] == 200


async def test_what_a_killed_activator_held_is_not_waited_for_once_the_next_one_runs(tmp_path: Path) -> None:
    async with world(tmp_path, demand=[{"reporter": "activator-local", "inFlight": 7}]) as here:
        await until(lambda: here.demand()["inFlight"] == 0)


async def test_an_idle_connection_is_closed_well_before_a_replica_would_wait_for_that(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\nx")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull")
        assert await reader.read() == b""
        ended.set()

    async with world(tmp_path) as here, await asyncio.start_server(answer, REPLICA, PORT):
        here.ready()
        for _ in range(2):
            assert (await here.ask())[0] == 200
        await asyncio.wait_for(ended.wait(), RuntimeSettings().idle_seconds / 3)


async def test_requests_follow_their_arm_to_the_revision_that_replaces_theirs(tmp_path: Path) -> None:
    async with world(tmp_path) as here, backend(REPLICA, PORT):
        asked = here.ask()
        await until(lambda: here.demand().get("inFlight") == 1)
        here.route("ab")
        await until(here.socket("b").exists)
        here.route("b")
        await until(lambda: not here.socket("a").exists())
        assert here.demand()["inFlight"] == 1
        here.ready("b")
        assert (await asked)[0] == 200


async def test_requests_to_a_service_that_is_deleted_are_told_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        asked = here.ask()
        await until(lambda: here.demand().get("inFlight") == 1)
        here.api.remove(kinds.ROUTE, "default", "digits")
        status, said = await asked
        assert (status, said["reason"]) == (503, "BackendGone")
        await until(lambda: not here.socket().exists())
        here.api.remove(kinds.AUTOSCALER, "default", "digits-a")
        await until(lambda: not here.activator._demand._reported and not here.activator._scaled_by)


async def test_what_waits_is_told_when_the_activator_stops(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        asked = here.ask()
        await until(lambda: here.demand().get("inFlight") == 1)
    status, said = await asked
    assert (status, said["reason"]) == (503, "ActivatorStopping")
