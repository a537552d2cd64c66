"""A controller that is killed or loses a response under load; readings that stop after a request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from serving import errors
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.gateway_pages import FakePages
from tests.fakes.kube import FakeKube
from tests.faults.autoscaler.test_autoscaler_signals import (
    NS,
    Time,
    autoscaled_api,
    autoscaler_status,
    condition,
    counts_during,
    replicas,
    running,
    ticks,
    time,
)
from tests.rig.control_plane.convergence import until

__all__ = ["time"]  # a fixture that every test here uses


class Scaling:
    """Writes of the scale subresource, the next of which fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: Callable[[], Awaitable[None]] | None = None
        self.is_done = True
        """Whether the write is done before the fault."""
        original = FakeKube.patch

        async def patch(
            kube: FakeKube, *arguments: Any, subresource: str | None = None, **options: Any
        ) -> Object:
            fault = self.fault if subresource == "scale" else None
            if fault is not None:
                self.fault = None
                if not self.is_done:
                    await fault()
            response = await original(kube, *arguments, subresource=subresource, **options)
            if fault is not None:
                await fault()
            return response

        monkeypatch.setattr(FakeKube, "patch", patch)


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Scaling:
    return Scaling(monkeypatch)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
async def test_no_replica_is_lost_when_the_controller_is_killed_during_a_burst(
    scaling: Scaling, *, is_done: bool
) -> None:
    api, pages, reached = autoscaled_api(1, 50, 1), FakePages("d"), asyncio.Event()

    async def killed() -> None:
        reached.set()
        await asyncio.Event().wait()

    pages.rates["d"] = 8.0
    async with running(api, pages):
        await until(
            lambda: "capacity" in autoscaler_status(api).get("decision", {}), "a decision on readings"
        )
        count_before = replicas(api)
        scaling.fault, scaling.is_done = killed, is_done
        pages.rates["d"] = 80.0
        await reached.wait()
    count_after = replicas(api)
    assert (count_after > count_before) is is_done
    async with running(api, pages):
        counts = await counts_during(api, pages, 40)
        assert min(counts) >= count_after
        assert 8 <= counts[-1] <= 30
        assert condition(api, "ScalingActive")["status"] == "True"
        assert autoscaler_status(api)["desiredReplicas"] == counts[-1]


async def test_own_scale_up_with_a_lost_response_is_not_taken_for_another_writer(
    scaling: Scaling, time: Time
) -> None:
    api = autoscaled_api(5, 50, 1, behavior={"scaleDown": {"stabilizationSeconds": 30}})
    pages = FakePages("d")

    async def lost() -> None:
        await ticks(pages, 2)  # by then the watch has shown the count
        raise errors.Unavailable("the answer is lost")

    pages.rates["d"], scaling.fault = 8.0, lost
    async with running(api, pages):
        await until(lambda: replicas(api) == 5, "the minimum")
        await ticks(pages, 10)
        api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"minReplicas": 1}})
        began = time.passed
        await until(lambda: replicas(api) < 5, "fewer")
        assert time.passed - began <= 400.0, "a count raised by another writer is kept for ten minutes"


async def test_the_last_replica_stays_when_readings_stop_after_its_last_request(time: Time) -> None:
    behavior = {"scaleToZero": {"idleSeconds": 40}}
    api, pages = autoscaled_api(0, 20, 1, behavior=behavior), FakePages("d")
    pages.rates["d"] = 5.0
    async with running(api, pages):
        await until(
            lambda: "capacity" in autoscaler_status(api).get("decision", {}), "a decision on readings"
        )
        pages.rates["d"] = 0.0
        await ticks(pages, 3)
        pages.is_gone = True
        assert await counts_during(api, pages, 120) == [1], "ten minutes"
        pages.is_gone = False
        await until(lambda: replicas(api) == 0, "the keep-alive is over")
