"""A controller that is killed or left without an answer under load, and readings that stop once a target has idled."""

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
    condition,
    counted,
    replicas,
    running,
    said,
    ticks,
    time,
    world,
)
from tests.rig.convergence import until

__all__ = ["time"]  # a fixture that every test here uses


class Scaling:
    """Writes of the scale subresource, the next of which does not end as it should."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: Callable[[], Awaitable[None]] | None = None
        self.is_done = True
        """Whether the write is done before the fault."""
        plain = FakeKube.patch

        async def patch(
            kube: FakeKube, *arguments: Any, subresource: str | None = None, **more: Any
        ) -> Object:
            fault = self.fault if subresource == "scale" else None
            if fault is not None:
                self.fault = None
                if not self.is_done:
                    await fault()
            answer = await plain(kube, *arguments, subresource=subresource, **more)
            if fault is not None:
                await fault()
            return answer

        monkeypatch.setattr(FakeKube, "patch", patch)


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Scaling:
    return Scaling(monkeypatch)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
async def test_no_replica_is_lost_when_the_controller_is_killed_at_the_write_of_a_burst(
    scaling: Scaling, *, is_done: bool
) -> None:
    api, pages, reached = world(1, 50, 1), FakePages("d"), asyncio.Event()

    async def killed() -> None:
        reached.set()
        await asyncio.Event().wait()

    pages.rates["d"] = 8.0
    async with running(api, pages):
        await until(lambda: "capacity" in said(api).get("decision", {}), "a decision on readings")
        before = replicas(api)
        scaling.fault, scaling.is_done = killed, is_done
        pages.rates["d"] = 80.0
        await reached.wait()
    left = replicas(api)
    assert (left > before) is is_done
    async with running(api, pages):
        counts = await counted(api, pages, 40)
        assert min(counts) >= left
        assert 8 <= counts[-1] <= 30
        assert condition(api, "ScalingActive")["status"] == "True"
        assert said(api)["desiredReplicas"] == counts[-1]


async def test_a_rise_whose_answer_was_lost_is_not_taken_for_somebody_elses(
    scaling: Scaling, time: Time
) -> None:
    api = world(5, 50, 1, behavior={"scaleDown": {"stabilizationSeconds": 30}})
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
        assert time.passed - began <= 400.0, "a count that somebody else has raised is kept for ten minutes"


async def test_the_last_replica_stays_when_readings_stop_after_its_last_request(time: Time) -> None:
    behavior = {"scaleToZero": {"idleSeconds": 40}}
    api, pages = world(0, 20, 1, behavior=behavior), FakePages("d")
    pages.rates["d"] = 5.0
    async with running(api, pages):
        await until(lambda: "capacity" in said(api).get("decision", {}), "a decision on readings")
        pages.rates["d"] = 0.0
        await ticks(pages, 3)
        pages.is_gone = True
        assert await counted(api, pages, 120) == [1], "ten minutes"
        pages.is_gone = False
        await until(lambda: replicas(api) == 0, "the keep-alive is over")
