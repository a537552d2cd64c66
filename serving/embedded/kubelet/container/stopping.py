"""Awaits the end of runs, and stops them, by their records alone and without the API."""

import asyncio
import logging
import signal
from collections.abc import Sequence

from serving.embedded.kubelet.records import PodDirectory, RunDirectory
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.system import processes, procfs
from serving.system.process_exit import wait_for_exit

log = logging.getLogger(__name__)

POLL_SECONDS = 0.01
"""Between reads of the record of a shim that is starting, which takes about 50 ms."""
VERDICT_SECONDS = 5.0
"""Longest wait for a shim to start, or to finish its log after the last process was killed."""
RECORD_SECONDS = 1.0
"""Between attempts to record an end on a full disk."""


async def ended(run: RunDirectory, shim_pidfd: int | None = None) -> bool:
    """Wait until the run has ended and its exit is recorded.

    Returns False if it has not begun, and never will. The shim, of this agent or of an earlier one, records
    the exit; without a shim, the run is declared lost. `shim_pidfd` is that of a shim that was just started
    and may have recorded nothing yet.
    """
    if shim_pidfd is not None:
        await wait_for_exit(shim_pidfd)
    while run.exit() is None:
        identities = run.identities()
        if identities is None:
            if run.is_abandoned() and run.identities() is None:
                return False
            await asyncio.sleep(POLL_SECONDS)
            continue
        shim, process = identities
        if (pidfd := processes.open_pidfd(shim)) is not None:
            await wait_for_exit(pidfd)
        if run.exit() is None:
            processes.send_signal(process, signal.SIGKILL)
            same_boot = shim.boot_id == procfs.boot_id()
            reason = "its container shim was killed" if same_boot else "the machine was restarted"
            await _declare_lost(run, reason)
    return True


async def _declare_lost(run: RunDirectory, reason: str) -> None:
    """Record a lost end; on a full disk, as soon as there is room, without which nothing starts either."""
    while True:
        try:
            run.declare_lost(reason)
        except OSError as error:
            log.info("the end of %s is not recorded yet: %s", run.path, error.strerror)
            await asyncio.sleep(RECORD_SECONDS)
        else:
            return


def send_signal(run: RunDirectory, number: signal.Signals) -> bool:
    """Signal the run's main process; return False if it is gone, or not recorded yet."""
    identities = run.identities()
    return identities is not None and processes.send_signal(identities[1], number)


async def stop(runs: Sequence[RunDirectory], grace: float, hurry: asyncio.Event | None = None) -> None:
    """SIGTERM, `grace` seconds, SIGKILL; return when all have ended. `hurry` ends the grace early.

    An end that a full disk does not take counts too: to remove the run makes room.
    """
    ends = [asyncio.create_task(ended(run)) for run in runs if run.exit() is None]
    if not ends:
        return
    if grace > 0:
        terminating = [asyncio.create_task(_send_sigterm(run)) for run in runs]
        hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
        finished = asyncio.create_task(_all_done(ends))
        await asyncio.wait({hurried, finished}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for task in (hurried, finished, *terminating):
            task.cancel()
    while not all(end.done() for end in ends) and not all(map(_is_gone, runs)):
        for run in runs:
            if run.exit() is None:
                send_signal(run, signal.SIGKILL)
        await asyncio.wait(ends, timeout=VERDICT_SECONDS)
        for run in runs:
            if run.exit() is None:
                _kill_shim(run)
    for end in ends:
        end.cancel()


def _is_gone(run: RunDirectory) -> bool:
    """Whether neither the shim nor the process of a recorded start runs."""
    identities = run.identities()
    return identities is not None and not any(map(processes.is_alive, identities))


def _kill_shim(run: RunDirectory) -> None:
    """Kill a shim that has hung: `ended` then declares the run lost."""
    identities = run.identities()
    if identities is not None and not processes.is_alive(identities[1]):
        processes.send_signal(identities[0], signal.SIGKILL)


async def _send_sigterm(run: RunDirectory) -> None:
    """Send SIGTERM as soon as the process is recorded."""
    while run.exit() is None and not send_signal(run, signal.SIGTERM):  # noqa: ASYNC110 the state is a file
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
