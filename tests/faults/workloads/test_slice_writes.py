"""EndpointSlices match the Pods when any write fails."""

import asyncio

import pytest

from serving import errors
from serving.resources import kinds
from serving.settings import ControllerSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running
from tests.rig.control_plane.workload_controllers import workloads

FAST = Settings(controllers=ControllerSettings(backoff_base_seconds=0.001, backoff_cap_seconds=0.01))
WRITES = 4


def pod(name: str, address: str, *, ready: str = "True", port: int = 8080) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "ports": [{"name": "serve", "containerPort": port}]}]
        },
        "status": {"podIP": address, "phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


SERVICE = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "serve"}]},
}


def readiness_by_address(api: FakeKube) -> dict[str, bool]:
    return {
        f"{endpoint['addresses'][0]}:{slice_['ports'][0]['port']}": endpoint["conditions"]["ready"]
        for slice_ in api.find(kinds.ENDPOINT_SLICE)
        for endpoint in slice_["endpoints"]
    }


async def until(api: FakeKube, expected: dict[str, bool]) -> None:
    async with asyncio.timeout(5):
        while readiness_by_address(api) != expected:
            await asyncio.sleep(0.001)


async def story(api: FakeKube) -> None:
    api.add(kinds.SERVICE, SERVICE)
    api.add(kinds.POD, pod("a", "127.77.0.2"))
    await until(api, {"127.77.0.2:8080": True})
    api.add(kinds.POD, pod("b", "127.77.0.3", ready="False", port=9090))
    await until(api, {"127.77.0.2:8080": True, "127.77.0.3:9090": False})
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    api.change(kinds.POD, "default", "a", {"metadata": deletion})
    await until(api, {"127.77.0.2:8080": False, "127.77.0.3:9090": False})
    api.remove(kinds.POD, "default", "a")
    await until(api, {"127.77.0.3:9090": False})


async def settled(api: FakeKube) -> int:
    """Return the number of writes after the last retry: a slice may be deleted twice."""
    writes = -1
    while writes != len(api.writes):
        writes = len(api.writes)
        await asyncio.sleep(2 * FAST.controllers.backoff_cap_seconds)
    return writes


@pytest.mark.parametrize("number", range(WRITES))
@pytest.mark.parametrize("done", [False, True], ids=["not-done", "answer-lost"])
async def test_slices_match_the_pods_when_any_write_fails(number: int, *, done: bool) -> None:
    api = FakeKube()
    api.fail_next(errors.Unavailable("injected failure"), skip=number, done=done)
    async with running(workloads(api.client("node"), FAST)):
        await story(api)


async def test_no_slice_is_written_when_endpoints_do_not_change() -> None:
    api = FakeKube()
    async with running(workloads(api.client("node"), FAST)):
        await story(api)
        assert len(api.writes) >= WRITES
        writes_before = await settled(api)
        api.change(kinds.POD, "default", "b", {"metadata": {"annotations": {"a": "b"}}})
        api.change(kinds.SERVICE, "default", "web", {"metadata": {"annotations": {"a": "b"}}})
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(api.writes) == writes_before
