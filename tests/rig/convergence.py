"""A controller that is refused, left without an answer, or killed at every one of its writes in turn.

    case = Case(arrange, control, story)
    await case.survives_failures(done=False)     # each write in turn is refused
    await case.survives_kills(done=True)         # killed behind each write in turn; another one goes on

Afterwards the objects must be those of a run that nothing disturbed.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from serving import errors
from serving.objects import Object
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube

VERDICT_SECONDS = 20.0
QUICK = dataclasses.replace(
    ControllerSettings(),
    workers=2,
    backoff_base_seconds=0.001,
    backoff_cap_seconds=0.01,
    probe_retry_seconds=0.01,
    gather_seconds=0.001,
    status_settle_seconds=0.01,
    release_seconds=0.01,
)
"""With delays that only order things: nothing here is slow, or overloaded by being asked again."""


async def until(true: Callable[[], bool], what: str = "the condition") -> None:
    deadline = asyncio.get_running_loop().time() + VERDICT_SECONDS
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run these in the block; then they are gone, as after SIGKILL."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        await kill(tasks)


async def kill(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def differences(found: Object, expected: Object) -> Object:
    """Return key → (found, expected) where they differ."""
    return {
        key: (found.get(key), expected.get(key))
        for key in found.keys() | expected.keys()
        if found.get(key) != expected.get(key)
    }


@dataclasses.dataclass
class Case:
    """`control` is the controller's process; `around` is everything else, which never fails."""

    arrange: Callable[[], FakeKube]
    control: Callable[[FakeKube], Coroutine[Any, Any, None]]
    around: Callable[[FakeKube], Coroutine[Any, Any, None]]
    story: Callable[[FakeKube], Awaitable[Object]]
    """What users do; returns a picture of the objects at the end, without times and counters."""

    async def undisturbed(self) -> tuple[Object, int]:
        """Return the picture and how many writes there were."""
        api = self.arrange()
        async with running(self.around(api), self.control(api)):
            return await self.story(api), len(api.writes)

    async def survives_failures(self, *, done: bool) -> int:
        """Fail each write in turn, before it is done or (`done`) with the answer lost; returns how many there are."""
        end, count = await self.undisturbed()
        for skip in range(count):
            api = self.arrange()
            api.fail_next(errors.Unavailable("told to fail"), skip=skip, done=done)
            async with running(self.around(api), self.control(api)):
                assert differences(await self.story(api), end) == {}, f"write {skip}: {api.writes[skip:][:1]}"
        return count

    async def survives_kills(self, *, done: bool) -> int:
        """Kill the controller at each write in turn, before or (`done`) after it; returns how many there are."""
        end, count = await self.undisturbed()
        for skip in range(count):
            api = self.arrange()
            reached = api.hang_next(skip=skip, done=done)
            async with running(self.around(api)), running(self.control(api)) as first:
                finished = asyncio.ensure_future(self.story(api))
                died = asyncio.create_task(reached.wait())
                await asyncio.wait({finished, died}, return_when=asyncio.FIRST_COMPLETED)
                died.cancel()
                await kill(first)
                async with running(self.control(api)):
                    assert differences(await finished, end) == {}, f"write {skip}: {api.writes[skip:][:1]}"
        return count
