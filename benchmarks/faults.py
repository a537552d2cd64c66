"""What clients and operators see when a process of the product is killed or hangs, or the machine is full.

The whole product runs (`slipway up`) with two services: `split` has two arms of two replicas each, `sole` one
arm of one replica. Under 200 requests per second through the gateway, each process is killed (SIGKILL) and
stopped (SIGSTOP) in turn; then replicas are restarted in turn, and the disk and the process table are filled.
For each fault: failed and slow requests, when the last of them was sent (`back`), the first thing that an
operator sees (a condition, an Event, a Pod's state or a warning in a log), and when every process and object
is as before (`restored`). Requests come from an open loop without retries.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rig import cold_models
from rig.faults import catalogue, disturbances, load, outcome, product
from rig.faults.catalogue import ENVOY, KILLED, LONG, REPLICA, SHORT, SOLE_REPLICA, Fault, stopped_for
from rig.faults.disturbances import FakeClock
from rig.faults.load import ServicesLoad
from rig.faults.outcome import FaultOutcome
from rig.faults.product import SOLE, SPLIT, TRY_SECONDS, Product
from rig.faults.signs import Signs
from rig.harness import Bar, report

from serving import clock
from serving.system import processes

RATE = 200.0
"""Requests per second."""
SHARES = {SPLIT: 0.8, SOLE: 0.2}
"""Of the requests."""
CALM_SECONDS = 2.0
"""Without a failed or slow request before a fault."""
RESTORED_SECONDS = 90.0
"""Longest wait until every process of the product runs and every object is Ready."""
AFTER_SECONDS = 3.0
"""That the load goes on after that."""
POLL_SECONDS = 0.05
SIGNS_REPORTED = 12
BACK_KILLED_SECONDS, BACK_HUNG_SECONDS, REPLACED_SECONDS = 1.0, 5.0, 15.0
"""The bars of Envoy and of a hung replica."""
TRY_MARGIN_SECONDS = 0.5
"""Of a request beyond its try timeout: the second attempt, and this machine."""


class Run:
    """One product under load, which has one fault after the other."""

    def __init__(self, tested: Product, requests: ServicesLoad, signs: Signs) -> None:
        self._tested = tested
        self._requests = requests
        self._signs = signs

    async def strike(self, fault: Fault) -> FaultOutcome:
        """Cause a fault, and wait until its end and its consequences are over."""
        if reason := fault.skipped or await self._problem_before():
            return FaultOutcome(fault.subject, fault.action, skipped=reason)
        begin = clock.monotonic()
        async with fault.strike(self._tested) as victims:
            await _hold(fault, victims)
        restored, left = await self._restored(fault, victims)
        await asyncio.sleep(AFTER_SECONDS)
        end = clock.monotonic()
        answers = await self._requests.between(begin, end)
        signs = [sign for sign in self._signs.since(begin) if sign.at < end]
        return outcome.outcome(
            fault.subject, fault.action, begin, answers, signs, restored=restored, left=left
        )

    async def _problem_before(self) -> str:
        """Wait until the product is healthy and answers in time; return the last problem, or an empty one."""
        deadline = clock.monotonic() + RESTORED_SECONDS
        problem = ""
        while clock.monotonic() < deadline:
            last = self._requests.last(CALM_SECONDS)
            problem = await self._tested.problem()
            if not problem and last and not any(map(outcome.is_bad, last)):
                return ""
            await asyncio.sleep(POLL_SECONDS)
        return f"before it, {problem or 'requests failed or were slow'}"

    async def _restored(
        self, fault: Fault, victims: Sequence[processes.ProcessIdentity]
    ) -> tuple[float | None, str]:
        """Wait until the product is healthy; return that time, or None and the last problem."""
        deadline = clock.monotonic() + RESTORED_SECONDS
        left = ""
        while clock.monotonic() < deadline:
            has_begun = not fault.is_fatal or _have_ended(victims)
            left = await self._tested.problem() if has_begun else f"{fault.subject} has not ended"
            if not left:
                return clock.monotonic(), ""
            await asyncio.sleep(POLL_SECONDS)
        return None, left


async def _hold(fault: Fault, victims: Sequence[processes.ProcessIdentity]) -> None:
    """Wait until the fault is to be undone."""
    deadline = clock.monotonic() + fault.seconds
    while clock.monotonic() < deadline:
        if fault.is_over_when_ended and _have_ended(victims):
            return
        await asyncio.sleep(POLL_SECONDS)


def _have_ended(victims: Sequence[processes.ProcessIdentity]) -> bool:
    return not any(map(processes.is_alive, victims))


async def main(*, quick: bool, only: Sequence[str], rate: float) -> None:
    struck: list[tuple[Fault, FaultOutcome]] = []
    with cold_models.folder() as folder, disturbances.small_disk(folder) as disk_problem:
        struck += await measure(folder, _chosen(catalogue.all_faults(disk_problem, quick=quick), only), rate)
    with cold_models.folder() as folder:
        fake = FakeClock(folder)
        faults = _chosen(catalogue.clock_faults(fake), only)
        # A product of its own: the library slows every reading of the clock down.
        with contextlib.nullcontext() if fake.problem else fake.preloaded():
            struck += await measure(folder, faults, rate)
    outcomes = [each for _, each in struck]
    Console(stderr=True, width=180).print(_table(outcomes))
    report(
        "faults", {"requestsPerSecond": rate, "faults": [_result(each) for each in outcomes]}, bars(struck)
    )


def _chosen(faults: Iterable[Fault], only: Sequence[str]) -> list[Fault]:
    return [fault for fault in faults if any(text in f"{fault.subject} {fault.action}" for text in only)]


async def measure(folder: Path, faults: Sequence[Fault], rate: float) -> list[tuple[Fault, FaultOutcome]]:
    """Cause these faults in one product."""
    if all(fault.skipped for fault in faults):
        return [(fault, FaultOutcome(fault.subject, fault.action, skipped=fault.skipped)) for fault in faults]
    struck = []
    rates = {inference: share * rate for inference, share in SHARES.items()}
    async with (
        product.deployed(folder) as tested,
        load.steady(tested.base, rates, features=product.FEATURES) as requests,
    ):
        signs = Signs(tested.kube, tested.data.logs)
        looking = asyncio.create_task(signs.run())
        try:
            for fault in faults:
                struck.append((fault, await Run(tested, requests, signs).strike(fault)))
                print(_line(struck[-1][1]), file=sys.stderr, flush=True)
        finally:
            looking.cancel()
    return struck


def bars(tried: Sequence[tuple[Fault, FaultOutcome]]) -> list[Bar]:
    """Return the bars of the faults, without those that were skipped."""
    result = []
    for fault, struck in tried:
        name = f"{struck.subject}, {struck.action}"
        if struck.skipped:
            continue
        if not fault.may_fail:
            result.append(Bar(f"{name}: failed requests", struck.failures, 0, struck.failures == 0))
        match struck.subject, struck.action:
            case str(subject), str(action) if subject == ENVOY and action in (KILLED, stopped_for(SHORT)):
                bound = BACK_KILLED_SECONDS if action == KILLED else BACK_HUNG_SECONDS
                result.append(_at_most(f"{name}: seconds until requests are served", struck.back, bound))
            case str(subject), str(action) if subject == REPLICA and action == stopped_for(LONG):
                result += _of_hung_replica(name, struck)
            case str(subject), str(action) if subject == SOLE_REPLICA and action == stopped_for(LONG):
                result.append(_replaced(name, struck))
            case _:
                pass
    return result


def _of_hung_replica(name: str, struck: FaultOutcome) -> list[Bar]:
    replaced = _replaced(name, struck)
    longest = _at_most(
        f"{name}: seconds of the longest request", struck.longest, TRY_SECONDS + TRY_MARGIN_SECONDS
    )
    return [longest, Bar(f"{name}: failed requests", struck.failures, 0, struck.failures == 0), replaced]


def _replaced(name: str, struck: FaultOutcome) -> Bar:
    restored = RESTORED_SECONDS if struck.restored is None else struck.restored
    return _at_most(f"{name}: seconds until it is replaced", restored, REPLACED_SECONDS)


def _at_most(what: str, value: float, bar: float) -> Bar:
    return Bar(what, round(value, 2), bar, value <= bar)


def _result(struck: FaultOutcome) -> dict[str, object]:
    signs = [
        {"seconds": round(sign.at, 2), "place": sign.place, "words": sign.words}
        for sign in struck.signs[:SIGNS_REPORTED]
    ]
    return {**asdict(struck), "signs": signs}


def _line(struck: FaultOutcome) -> str:
    name = f"{struck.subject}, {struck.action}"
    if struck.skipped:
        return f"{name}: skipped: {struck.skipped}"
    failed = ", ".join(f"{count} x {what}" for what, count in struck.failed.items()) or "0"
    restored = f"not restored: {struck.left}" if struck.restored is None else f"{struck.restored:.1f} s"
    return (
        f"{name}: {failed} failed, {struck.slow} slow of {struck.requests}, "
        f"longest {struck.longest:.2f} s, back {struck.back:.1f} s, restored {restored}"
    )


def _table(outcomes: Sequence[FaultOutcome]) -> Table:
    table = Table(
        "subject", "fault", "failed", "slow", "of", "longest", "back", "noticed", "first sign", "restored"
    )
    for struck in outcomes:
        if struck.skipped:
            table.add_row(struck.subject, struck.action, "skipped", "", "", "", "", "", struck.skipped, "")
            continue
        first = struck.signs[0] if struck.signs else None
        table.add_row(
            struck.subject,
            struck.action,
            ", ".join(f"{count} x {what}" for what, count in struck.failed.items()) or "0",
            str(struck.slow),
            str(struck.requests),
            f"{struck.longest:.2f}",
            f"{struck.back:.1f}",
            f"{first.at:.1f}" if first else "-",
            f"{first.place}: {first.words}" if first else "",
            "never" if struck.restored is None else f"{struck.restored:.1f}",
        )
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="no process is stopped for a minute, except replicas"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="the faults whose name has this text, such as 'api SIGKILL'; may be repeated",
    )
    parser.add_argument(
        "--rate", type=float, default=RATE, help="requests per second; less where the machine has other work"
    )
    options = parser.parse_args()
    asyncio.run(main(quick=options.quick, only=options.only or [""], rate=options.rate))
