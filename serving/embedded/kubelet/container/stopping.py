"""Awaits the end of runs, and stops them, by their records alone and without the API."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from pathlib import Path

from serving import clock
from serving.embedded.kubelet.records import PodDirectory, RunDirectory
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.system import processes, procfs
from serving.system.process_exit import wait_for_exit
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)

POLL_SECONDS = 0.01
"""Between reads of the record of a shim that is starting, which takes about 50 ms."""
VERDICT_SECONDS = 5.0
"""Longest wait for a shim to start, or to finish its log after the last process was killed."""
RETRY_SECONDS = 1.0
"""Between attempts while the disk is full, or no descriptor is left."""


async def ended(run: RunDirectory, shim_pidfd: int | None = None) -> bool:
    """Wait until the run has ended and its exit is recorded.

    Returns False if it has not begun, and never will. The shim, of this agent or of an earlier one, records
    the exit; without a shim, the run is declared lost. `shim_pidfd` is that of a shim that was just started
    and may have recorded nothing yet. While no descriptor is left, or the disk does not take a lost end, the
    wait goes on: nothing starts then either.
    """
    if shim_pidfd is not None:
        with contextlib.suppress(OSError):
            await wait_for_exit(shim_pidfd)
    while True:
        try:
            return await _ended(run)
        except OSError as error:
            log.info("the end of %s cannot be read or recorded yet: %s", run.path, error.strerror)
            await asyncio.sleep(RETRY_SECONDS)


async def _ended(run: RunDirectory) -> bool:
    while run.exit() is None:
        identities = run.identities()
        if identities is None:
            if run.is_abandoned() and run.identities() is None:
                return False
            await asyncio.sleep(POLL_SECONDS)
            continue
        shim, _ = identities
        if (pidfd := processes.open_pidfd(shim)) is not None:
            await wait_for_exit(pidfd)
        if run.exit() is None:
            _kill_orphans(run)
            same_boot = shim.boot_id == procfs.boot_id()
            run.declare_lost("its container shim was killed" if same_boot else "the machine was restarted")
    return True


def send_signal(run: RunDirectory, number: signal.Signals) -> bool:
    """Signal the run's main process; return False if it is gone, or not recorded yet."""
    identities = run.identities()
    return identities is not None and processes.send_signal(identities[1], number)


async def stop(runs: Sequence[RunDirectory], grace: float, hurry: asyncio.Event | None = None) -> None:
    """SIGTERM, `grace` seconds, SIGKILL; return when all have ended. `hurry` ends the grace early.

    An end that a full disk does not take counts too: to remove the run makes room. While no descriptor is
    left, nothing can be signalled, and it is tried again.
    """
    deadline = clock.monotonic() + grace
    while True:
        try:
            await _stop(runs, max(deadline - clock.monotonic(), 0.0), hurry)
        except OSError as error:
            log.info("containers cannot be stopped yet: %s", error.strerror)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def _stop(runs: Sequence[RunDirectory], grace: float, hurry: asyncio.Event | None) -> None:
    ends = [asyncio.create_task(ended(run)) for run in _unended(runs)]
    if not ends:
        return
    try:
        if grace > 0:
            await _terminate(runs, ends, grace, hurry)
        await _kill(runs, ends)
        for end in filter(asyncio.Task.done, ends):
            end.result()  # a wait that failed is no end
    finally:
        for end in ends:
            end.cancel()


async def _terminate(
    runs: Sequence[RunDirectory],
    ends: Sequence[asyncio.Task[bool]],
    grace: float,
    hurry: asyncio.Event | None,
) -> None:
    """Send SIGTERM, and wait until all have ended, at most `grace` seconds; `hurry` ends the wait."""
    terminating = [asyncio.create_task(_send_sigterm(run)) for run in runs]
    hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
    finished = asyncio.create_task(_all_done(ends))
    try:
        await asyncio.wait({hurried, finished}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (hurried, finished, *terminating):
            task.cancel()


async def _kill(runs: Sequence[RunDirectory], ends: Sequence[asyncio.Task[bool]]) -> None:
    """Send SIGKILL until all have ended, or no process of them is left."""
    while not all(end.done() for end in ends) and not all(map(_is_gone, runs)):
        for run in _unended(runs):
            send_signal(run, signal.SIGKILL)
        await asyncio.wait(ends, timeout=VERDICT_SECONDS)
        for run in _unended(runs):
            _kill_shim(run)
    for run in _unended(runs):
        _kill_orphans(run)


def _unended(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    return [run for run in runs if run.exit() is None]


def _is_gone(run: RunDirectory) -> bool:
    """Whether neither the shim nor the process of a recorded start runs."""
    identities = run.identities()
    return identities is not None and not any(map(processes.is_alive, identities))


def _kill_shim(run: RunDirectory) -> None:
    """Kill a shim that has hung: `ended` then declares the run lost."""
    identities = run.identities()
    if identities is not None and not processes.is_alive(identities[1]):
        processes.send_signal(identities[0], signal.SIGKILL)


def _kill_orphans(run: RunDirectory) -> None:
    """SIGKILL what a shim that was killed has left, and what that forks meanwhile.

    As root, the kernel has killed all with the shim. Else there may be the main process, the other processes
    of its session, and those in the container's cgroups.
    """
    killed: set[ProcessIdentity] = set()
    while orphans := _orphans(run) - killed:
        for process in orphans:
            with contextlib.suppress(PermissionError):  # a program that has changed its user
                processes.send_signal(process, signal.SIGKILL)
        killed |= orphans


def _orphans(run: RunDirectory) -> set[ProcessIdentity]:
    identities = run.identities()
    if identities is None or identities[1].boot_id != procfs.boot_id():
        return set()
    main = identities[1]
    orphans = processes.of_session(main)
    if processes.is_alive(main):  # it may not have made its session yet
        orphans.add(main)
    for group in run.cgroups():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            pids = Path(group, "cgroup.procs").read_text().split()
            orphans |= {process for pid in pids if (process := processes.identity_of(int(pid))) is not None}
    return orphans


async def _send_sigterm(run: RunDirectory) -> None:
    """Send SIGTERM as soon as the process is recorded, and a descriptor is free."""
    while True:
        with contextlib.suppress(OSError):
            if run.exit() is not None or send_signal(run, signal.SIGTERM):
                return
        await asyncio.sleep(POLL_SECONDS)


async def _all_done(ends: Sequence[asyncio.Task[bool]]) -> bool:
    await asyncio.wait(ends)
    return True


async def remove(
    pod: PodDirectory, cgroups: Cgroups, grace: float, hurry: asyncio.Event | None = None
) -> None:
    """End all runs of a Pod, then remove its cgroups, volumes, logs and records."""
    await stop(list(pod.latest()), grace, hurry)
    await asyncio.to_thread(cgroups.remove, pod.path.name)
    await asyncio.to_thread(pod.remove)
