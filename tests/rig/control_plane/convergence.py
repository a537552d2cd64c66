"""A controller whose writes are, each in turn, refused, left without a response, or followed by its death.

    case = Case(arrange, control, around, story)
    await case.survives_failures(done=False)     # each write in turn is refused
    await case.survives_kills(done=True)         # killed after each write in turn; a new controller continues

Afterwards the objects must equal those of an undisturbed run.
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
    gather_seconds=0.001,
    status_settle_seconds=0.01,
    release_seconds=0.01,
)
"""Short delays: a fake API server is neither slow nor overloaded."""


async def until(holds: Callable[[], bool], description: str = "the condition") -> None:
    deadline = asyncio.get_running_loop().time() + VERDICT_SECONDS
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"not within {VERDICT_SECONDS} s: {description}"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run coroutines during the block, and cancel them at its end, as SIGKILL would."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        await kill(tasks)


async def kill(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def differences(actual: Object, expected: Object) -> Object:
    """Return key → (actual, expected) where they differ."""
    return {
        key: (actual.get(key), expected.get(key))
        for key in actual.keys() | expected.keys()
        if actual.get(key) != expected.get(key)
    }


@dataclasses.dataclass
class Case:
    """`control` is the controller's process; `around` is everything else, which never fails."""

    arrange: Callable[[], FakeKube]
    control: Callable[[FakeKube], Coroutine[Any, Any, None]]
    around: Callable[[FakeKube], Coroutine[Any, Any, None]]
    story: Callable[[FakeKube], Awaitable[Object]]
    """The actions of users; returns the final state of the objects, without times and counters."""

    async def undisturbed(self) -> tuple[Object, int]:
        """Return the final state and the number of writes."""
        api = self.arrange()
        async with running(self.around(api), self.control(api)):
            return await self.story(api), len(api.writes)

    async def survives_failures(self, *, done: bool) -> int:
        """Fail each write in turn, before it is stored or (`done`) after; return the number of writes."""
        end, count = await self.undisturbed()
        for skip in range(count):
            api = self.arrange()
            api.fail_next(errors.Unavailable("injected failure"), skip=skip, done=done)
            async with running(self.around(api), self.control(api)):
                assert differences(await self.story(api), end) == {}, f"write {skip}: {api.writes[skip:][:1]}"
        return count

    async def survives_kills(self, *, done: bool) -> int:
        """Kill the controller before or (`done`) after each write in turn; return the number of writes."""
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
