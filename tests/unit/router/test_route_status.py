"""A gateway keeps its entry in the status of a Route as Envoy serves it."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from serving.kube import EventRecorder, Informer, Key
from serving.objects import Object
from serving.resources import kinds
from serving.router.plan.service import GatewayService, gateway_service
from serving.router.route_status import RouteStatusWriter
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until
from tests.rig.servers.gateway import route, settings_for_test

KEY = Key("default", "digits")


@asynccontextmanager
async def refused_route() -> AsyncIterator[tuple[FakeKube, RouteStatusWriter]]:
    """Yield an API in which the gateway has reported that Envoy serves nothing of the Route."""
    kube = FakeKube()
    stored = route("digits", [("stable", 10_000)])
    kube.add(kinds.ROUTE, {**stored, "metadata": {"name": "digits", "namespace": "default"}})
    routes = Informer(kube, kinds.ROUTE)
    writer = RouteStatusWriter(kube, routes, EventRecorder(kube, "gateway"), settings_for_test(), dict)
    async with running(routes.run(), writer.run()):
        await routes.synced.wait()
        writer.refused(KEY, "a reason")
        await until(lambda: bool(entries(kube)))
        yield kube, writer


def entries(kube: FakeKube) -> list[Object]:
    [stored] = kube.find(kinds.ROUTE)
    return list((stored.get("status") or {}).get("gateways") or [])


@pytest.mark.parametrize("status", [None, {"gateways": []}, {"gateways": [{"name": "local", "message": ""}]}])
async def test_entry_is_written_again_when_others_change_it(status: dict[str, Any] | None) -> None:
    async with refused_route() as (kube, _):
        before = entries(kube)
        user = kube.client("user")
        await user.patch(kinds.ROUTE, *KEY, {"status": status}, subresource="status")
        await until(lambda: entries(kube) == before)


async def test_route_is_not_written_when_another_part_of_it_changes() -> None:
    async with refused_route() as (kube, _):
        writes = kube.writes.count("apply routes/digits/status")
        kube.change(kinds.ROUTE, *KEY, {"metadata": {"labels": {"a": "b"}}})
        # Changes are handled in order: when the second is undone, the first has been handled.
        await kube.client("user").patch(kinds.ROUTE, *KEY, {"status": None}, subresource="status")
        await until(lambda: bool(entries(kube)))
        assert kube.writes.count("apply routes/digits/status") == writes + 1


async def test_route_that_replaces_another_unseen_gets_the_entry() -> None:
    async with refused_route() as (kube, _):
        before = entries(kube)
        replace(kube)
        await until(lambda: entries(kube) == before)


async def test_route_that_replaces_a_forgotten_one_gets_an_equal_entry() -> None:
    async with refused_route() as (kube, writer):
        before = entries(kube)
        writer.forget(KEY)
        replace(kube)
        writer.refused(KEY, "a reason")
        await until(lambda: entries(kube) == before)


def replace(kube: FakeKube) -> None:
    """Delete the Route, and create one with the same spec."""
    [stored] = kube.find(kinds.ROUTE)
    kube.remove(kinds.ROUTE, *KEY)
    kube.add(kinds.ROUTE, {"metadata": {"name": "digits", "namespace": "default"}, "spec": stored["spec"]})
    assert not entries(kube)


async def test_entry_and_manager_are_removed_when_the_gateway_leaves() -> None:
    async with refused_route() as (kube, writer):
        await kube.apply_status(
            kinds.ROUTE,
            {"metadata": {"name": "digits", "namespace": "default"}},
            {"gateways": [{"name": "other", "message": ""}]},
            manager="slipway-gateway-other",
        )
        await writer.withdraw()
        assert [entry["name"] for entry in entries(kube)] == ["other"]
        [stored] = kube.find(kinds.ROUTE)
        managers = {entry["manager"] for entry in stored["metadata"]["managedFields"]}
        assert "slipway-gateway-other" in managers
        assert "slipway-gateway-local" not in managers


WRITE = "apply routes/digits/status"


@asynccontextmanager
async def starting_route(settle_seconds: float) -> AsyncIterator[tuple[FakeKube, RouteStatusWriter]]:
    """Yield an API with a Route whose only backend is not proven, and a gateway that reports nothing yet."""
    kube = FakeKube()
    for name in ("digits", "other"):
        kube.add(kinds.ROUTE, {**unproven(), "metadata": {"name": name, "namespace": "default"}})
    routes = Informer(kube, kinds.ROUTE)
    controllers = ControllerSettings(gather_seconds=0.001, status_settle_seconds=settle_seconds)
    settings = dataclasses.replace(settings_for_test(), controllers=controllers)
    writer = RouteStatusWriter(kube, routes, EventRecorder(kube, "gateway"), settings, dict)
    async with running(routes.run(), writer.run()):
        await routes.synced.wait()
        yield kube, writer


def unproven() -> Object:
    unweighted = route("digits", [], unweighted=["stable"])
    backends = [{**backend, "probe": ["/ready"]} for backend in unweighted["spec"]["backends"]]
    return {**unweighted, "spec": {**unweighted["spec"], "backends": backends}}


def digits(kube: FakeKube) -> Object:
    """Return the entry of the Route `digits`; empty if there is none."""
    [stored] = [route for route in kube.find(kinds.ROUTE) if route["metadata"]["name"] == "digits"]
    return dict(next(iter((stored.get("status") or {}).get("gateways") or []), {}))


def service() -> GatewayService:
    return gateway_service(unproven(), {})


async def test_acceptance_and_first_probe_are_one_write_when_no_revision_is_proven() -> None:
    async with starting_route(3600.0) as (kube, writer):
        writer.accepted(KEY, service(), "")
        writer.refused(Key("default", "other"), "a reason")
        await until(lambda: "apply routes/other/status" in kube.writes)  # written in the order of reports
        writer.probed(KEY, {"digits-stable": ""})
        await until(lambda: bool(digits(kube)))
        assert kube.writes.count(WRITE) == 1
        assert (digits(kube)["acceptedGeneration"], len(digits(kube)["probes"])) == (1, 1)


async def test_acceptance_is_written_when_no_probe_follows_for_long() -> None:
    async with starting_route(0.01) as (kube, writer):
        writer.accepted(KEY, service(), "")
        await until(lambda: bool(digits(kube)))
