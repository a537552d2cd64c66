"""Traffic and changes while the API server refuses requests, is slow, or is away.

A proxy before the API has the faults. Controllers and gateways use the proxy; the test's client, a cluster's
own controllers and its kubelet do not.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from serving.resources import kinds, names
from tests.contracts.traffic.digits_world import STORY_SECONDS, DigitsWorld, accepted_weights, keep_asking
from tests.objects.contract_objects import eventually
from tests.rig.control_plane.convergence import running
from tests.rig.control_plane.faulty_api import FaultyApi, token_of
from tests.rig.machine.addresses import own

pytestmark = [
    pytest.mark.server_only("the processes of controllers and gateways connect by a kubeconfig"),
    pytest.mark.timeout(180),
]

ADDRESS = own(118)
"""Of the proxy."""
POD_ADDRESS = own(119)
ANSWERS = 50
"""Fewest answers of each gateway during a fault, and after it."""
REFUSED_SHARE = 1 / 3
SLOW_SECONDS = 3.0
AWAY_SECONDS = 11.0
"""A restart of an API server on a small machine."""


@pytest.fixture
async def faulty_api(contract_kubeconfig: Path) -> AsyncIterator[FaultyApi]:
    if not token_of(contract_kubeconfig):
        pytest.skip("the kubeconfig has no token, and a proxy has no client certificate to forward")
    async with FaultyApi(contract_kubeconfig, ADDRESS) as api:
        yield api


@pytest.fixture
def pod_address() -> str:
    return POD_ADDRESS


@pytest.fixture
def component_kubeconfig(faulty_api: FaultyApi, contract_kubeconfig: Path, tmp_path: Path) -> Path:
    path = tmp_path / "faulty.kubeconfig"
    faulty_api.write_kubeconfig(path, token_of(contract_kubeconfig))
    return path


@asynccontextmanager
async def refusing(api: FaultyApi) -> AsyncIterator[None]:
    """Refuse a share of all requests, beginning with those that watch again."""
    api.refused_share = REFUSED_SHARE
    try:
        async with api.away():
            pass
        yield
    finally:
        api.refused_share = 0.0


@asynccontextmanager
async def slow(api: FaultyApi) -> AsyncIterator[None]:
    api.delay_seconds = SLOW_SECONDS
    try:
        yield
    finally:
        api.delay_seconds = 0.0


@asynccontextmanager
async def away(api: FaultyApi) -> AsyncIterator[None]:
    async with api.away():
        yield
        await asyncio.sleep(AWAY_SECONDS)


Fault = Callable[[FaultyApi], AbstractAsyncContextManager[None]]


@pytest.mark.parametrize(("fault", "changes"), [(refusing, 12), (slow, 1), (away, 1)])
async def test_no_request_fails_and_no_object_is_made_twice_during_changes(
    world: DigitsWorld, faulty_api: FaultyApi, fault: Fault, changes: int
) -> None:
    async with world.gateway("a") as first, world.gateway("b") as second:
        await world.create(world.predictor("stable", "v1", "/first", 100))
        await world.ready()
        answers: tuple[list[int], list[int]] = ([], [])
        fewest = ANSWERS

        async def have_answered() -> bool:
            return all(len(of_gateway) >= fewest for of_gateway in answers)

        async with running(keep_asking(first, answers[0]), keep_asking(second, answers[1])):
            async with fault(faulty_api):
                for stable in range(25, 25 + changes):
                    await world.change(*world.split(stable, 100 - stable))
                    if fault is not away:
                        await until_accepted(world, {"stable": stable, "canary": 100 - stable})
                await eventually(have_answered, STORY_SECONDS)
            await until_accepted(world, {"stable": stable, "canary": 100 - stable})
            await world.change(*world.split(60, 40))
            await until_accepted(world, {"stable": 60, "canary": 40})
            fewest = max(map(len, answers)) + ANSWERS
            await eventually(have_answered, STORY_SECONDS)
        assert {*answers[0], *answers[1]} == {200}
        assert await objects(world) == {"Deployment": 2, "Service": 2, "Autoscaler": 2, "Route": 1}
    if fault is refusing:
        assert set(faulty_api.refused) == {409, 410, 429, 500}


async def until_accepted(world: DigitsWorld, percent: dict[str, float]) -> None:
    """Wait until both gateways serve with these weights."""
    await world.ready()
    await world.until(kinds.ROUTE, lambda route: accepted_weights(route) == {"a": percent, "b": percent})


async def objects(world: DigitsWorld) -> dict[str, int]:
    """Return the number of the Inference's objects by kind."""
    labels = f"{names.INFERENCE_LABEL}=digits"
    made = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.ROUTE)
    return {
        kind.kind: len((await world.kube.list(kind, world.namespace, labels=labels)).items) for kind in made
    }
