"""The faults, each with the process that it strikes, and whether it may fail requests."""

import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from rig.faults import disturbances
from rig.faults.product import SOLE, SPLIT, Product
from serving.embedded.supervisor import zygote as supervisor_zygote
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.system import processes
from serving.system.processes import ProcessIdentity

COMPONENT_ZYGOTE, ENVOY, REPLICA, SOLE_REPLICA, SHIM, ZYGOTE, UP = (
    "zygote of components",
    "Envoy",
    "replica of two",
    "sole replica",
    "shim of a replica",
    "zygote",
    "up",
)
EVERY_COMPONENT = "up and every component"
KILLED = "SIGKILL"
SHORT, LONG = 10.0, 60.0
"""Seconds that a process is stopped."""
UP_SECONDS = 5.0
"""From SIGKILL of `up` to the next one."""
FULL_SECONDS = 10.0
"""That the disk or the process table is full."""
STEPPED_SECONDS = 15.0
"""Until a clock that was set is set back."""

Victims = Sequence[ProcessIdentity]
Find = Callable[[Product], Awaitable[Victims]]


@dataclass(frozen=True)
class Fault:
    """One fault."""

    subject: str
    action: str
    strike: Callable[[Product], AbstractAsyncContextManager[Victims]]
    """Begins the fault, yields the processes that it strikes, and undoes it."""
    seconds: float = 0.0
    """Until it is undone."""
    is_over_when_ended: bool = False
    """Whether nothing is left to undo when the struck processes have ended."""
    is_fatal: bool = False
    """Whether the struck processes end in any case."""
    may_fail: bool = False
    """Whether it may fail requests."""
    skipped: str = ""
    """Why it cannot be tried here."""


def stopped_for(seconds: float) -> str:
    return f"SIGSTOP {seconds:g} s"


def all_faults(disk_problem: str, *, quick: bool) -> Iterator[Fault]:
    """Yield every fault; `disk_problem` says why the disk cannot be filled."""
    for subject, find in _subjects().items():
        may_fail = subject in (ENVOY, SOLE_REPLICA)
        yield Fault(subject, KILLED, _killing(find), is_fatal=True, may_fail=may_fail)
    for subject, find in {**_subjects(), UP: _up}.items():
        # Only 60 s show how long a hung replica takes to be replaced.
        long = not quick or subject in (REPLICA, SOLE_REPLICA)
        for seconds in (SHORT, LONG) if long else (SHORT,):
            yield Fault(
                subject,
                stopped_for(seconds),
                _stopping(find),
                seconds,
                is_over_when_ended=True,
                may_fail=True,
            )
    yield Fault(UP, KILLED, _killing_up(_up), UP_SECONDS, is_fatal=True)
    yield Fault(EVERY_COMPONENT, KILLED, _killing_up(_up_and_components), UP_SECONDS, is_fatal=True)
    for inference in (SPLIT, SOLE):
        yield Fault(f"arm of {inference}", "rolling restart", _restarting(inference), is_fatal=True)
    for place, fill, problem in (
        ("full disk", _full_disk, disk_problem),
        ("full process table", _full_process_table, disturbances.process_table_problem()),
    ):
        yield Fault(place, f"{FULL_SECONDS:g} s", _filling(fill, None), FULL_SECONDS, skipped=problem)
        for subject in ("api", "gateway", ENVOY, REPLICA):
            yield Fault(
                f"{place}, {subject}",
                KILLED,
                _filling(fill, _subjects()[subject]),
                FULL_SECONDS,
                may_fail=subject == ENVOY,
                skipped=problem,
            )


def clock_faults(clock: disturbances.FakeClock) -> Iterator[Fault]:
    """Yield the faults of the wall clock, alone and with a process that is killed."""
    for step, words in (("+3600", "an hour ahead"), ("-3600", "an hour back")):
        for subject in ("", "api", "controllers", REPLICA):

            def fill(_: Product, step: str = step) -> AbstractAsyncContextManager[None]:
                return clock.stepped(step)

            yield Fault(
                ", ".join(filter(None, (f"clock {words}", subject))),
                KILLED if subject else f"{STEPPED_SECONDS:g} s",
                _filling(fill, _subjects()[subject] if subject else None),
                STEPPED_SECONDS,
                skipped=clock.problem,
            )


def _subjects() -> dict[str, Find]:
    """Return how to find each process that is killed and stopped, by its name."""

    def component(name: str) -> Find:
        async def find(product: Product) -> Victims:
            return [product.component(name)]

        return find

    async def envoy(product: Product) -> Victims:
        return [product.envoy()]

    async def replica(product: Product) -> Victims:
        return [await product.replica(SPLIT)]

    async def sole_replica(product: Product) -> Victims:
        return [await product.replica(SOLE)]

    async def shim(product: Product) -> Victims:
        return [await product.shim(SPLIT)]

    async def zygote(product: Product) -> Victims:
        return [product.zygote()]

    return {
        **{name: component(name) for name in COMPONENTS},
        COMPONENT_ZYGOTE: component(supervisor_zygote.NAME),
        ENVOY: envoy,
        REPLICA: replica,
        SOLE_REPLICA: sole_replica,
        SHIM: shim,
        ZYGOTE: zygote,
    }


async def _up(product: Product) -> Victims:
    return [product.component("up")]


async def _up_and_components(product: Product) -> Victims:
    return [product.component(name) for name in ("up", *COMPONENTS)]


def _killing(find: Find) -> Callable[[Product], AbstractAsyncContextManager[Victims]]:
    @contextlib.asynccontextmanager
    async def strike(product: Product) -> AsyncIterator[Victims]:
        victims = await find(product)
        _signal(victims, signal.SIGKILL)
        yield victims

    return strike


def _killing_up(find: Find) -> Callable[[Product], AbstractAsyncContextManager[Victims]]:
    @contextlib.asynccontextmanager
    async def strike(product: Product) -> AsyncIterator[Victims]:
        victims = await find(product)
        _signal(victims, signal.SIGKILL)
        yield victims
        await product.start_up()

    return strike


def _stopping(find: Find) -> Callable[[Product], AbstractAsyncContextManager[Victims]]:
    @contextlib.asynccontextmanager
    async def strike(product: Product) -> AsyncIterator[Victims]:
        victims = await find(product)
        _signal(victims, signal.SIGSTOP)
        try:
            yield victims
        finally:
            _signal(victims, signal.SIGCONT)

    return strike


def _restarting(inference: str) -> Callable[[Product], AbstractAsyncContextManager[Victims]]:
    @contextlib.asynccontextmanager
    async def strike(product: Product) -> AsyncIterator[Victims]:
        victims = [await product.replica(inference)]
        await product.restart(inference)
        yield victims

    return strike


def _filling(
    fill: Callable[[Product], AbstractAsyncContextManager[None]], find: Find | None
) -> Callable[[Product], AbstractAsyncContextManager[Victims]]:
    """Return a fault of the machine, during which a process may be killed."""

    @contextlib.asynccontextmanager
    async def strike(product: Product) -> AsyncIterator[Victims]:
        victims = [] if find is None else await find(product)
        async with fill(product):
            _signal(victims, signal.SIGKILL)
            yield victims

    return strike


def _full_disk(product: Product) -> AbstractAsyncContextManager[None]:
    return disturbances.full_disk(product.data.root.parent)


def _full_process_table(product: Product) -> AbstractAsyncContextManager[None]:
    members = [product.component(name) for name in ("up", supervisor_zygote.NAME, *COMPONENTS)]
    return disturbances.full_process_table([*members, product.zygote()])


def _signal(victims: Victims, number: signal.Signals) -> None:
    for victim in victims:
        processes.send_signal(victim, number)
