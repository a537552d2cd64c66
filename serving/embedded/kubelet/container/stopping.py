"""Awaits the end of runs, and stops them, by the records of the runs alone and without the API."""

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
KILL_PERIOD_SECONDS = 5.0
"""Between rounds of SIGKILL: more than a shim takes to record its start, or to finish the log after the main
process was killed. A shim that takes longer has hung."""
RETRY_SECONDS = 1.0
"""Between attempts while the disk is full, or no descriptor is left."""


async def ended(run: RunDirectory, shim_pidfd: int | None = None) -> bool:
    """Wait until the run has ended and its exit is recorded; return False if it never begins.

    The shim records the exit; if the shim is dead, this function records that the exit is unknown. The wait
    goes on while no descriptor is free to read the record, or the disk is too full to write that the exit is
    unknown: no container can start then either.

    Args:
        run: the record of the run; its shim may be of this agent or of an earlier one.
        shim_pidfd: pidfd of a shim that was just started, which may have recorded nothing yet.
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
            # Again: a shim may have recorded its start, and ended, before `is_abandoned` took the lock.
            if run.is_abandoned() and run.identities() is None:
                return False
            await asyncio.sleep(POLL_SECONDS)
            continue
        if (pidfd := processes.open_pidfd(identities.shim)) is not None:
            await wait_for_exit(pidfd)
        if run.exit() is None:
            _kill_orphans(run)
            same_boot = identities.shim.boot_id == procfs.boot_id()
            run.declare_lost("its container shim was killed" if same_boot else "the machine was restarted")
    return True


def send_signal(run: RunDirectory, number: signal.Signals) -> bool:
    """Signal the run's main process; return False if it is gone, or not recorded yet."""
    identities = run.identities()
    return identities is not None and processes.send_signal(identities.main, number)


async def stop(runs: Sequence[RunDirectory], grace: float, hurry: asyncio.Event | None = None) -> None:
    """SIGTERM, `grace` seconds, SIGKILL; return when all runs have ended. `hurry` ends the grace early.

    A run whose processes are gone has ended even if a full disk prevents the record of its exit: the caller
    may then remove the run, which makes room. While no descriptor is free, no process can be signalled, and
    the stop is tried again.
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
            end.result()  # raises the error of a wait that failed, so that `stop` tries again
    finally:
        for end in ends:
            end.cancel()


async def _terminate(
    runs: Sequence[RunDirectory],
    ends: Sequence[asyncio.Task[bool]],
    grace: float,
    hurry: asyncio.Event | None,
) -> None:
    """Send SIGTERM, and wait until all runs have ended, at most `grace` seconds; `hurry` ends the wait."""
    terminating = [asyncio.create_task(_send_sigterm(run)) for run in runs]
    hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
    finished = asyncio.create_task(_all_done(ends))
    try:
        await asyncio.wait({hurried, finished}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (hurried, finished, *terminating):
            task.cancel()


async def _kill(runs: Sequence[RunDirectory], ends: Sequence[asyncio.Task[bool]]) -> None:
    """Send SIGKILL until the exits of all runs are recorded, or no shim and no main process runs."""
    while not all(end.done() for end in ends) and not all(map(_is_gone, runs)):
        for run in _unended(runs):
            send_signal(run, signal.SIGKILL)
        await asyncio.wait(ends, timeout=KILL_PERIOD_SECONDS)
        for run in _unended(runs):
            _kill_shim(run)
    for run in _unended(runs):  # their exit could not be recorded, so `ended` is not done
        _kill_orphans(run)


def _unended(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    return [run for run in runs if run.exit() is None]


def _is_gone(run: RunDirectory) -> bool:
    """Whether the start is recorded, and neither the shim nor the main process runs."""
    identities = run.identities()
    return identities is not None and not any(map(processes.is_alive, identities))


def _kill_shim(run: RunDirectory) -> None:
    """Kill the shim of a dead main process, as it has hung: `ended` then declares the run lost."""
    identities = run.identities()
    if identities is not None and not processes.is_alive(identities.main):
        processes.send_signal(identities.shim, signal.SIGKILL)


def _kill_orphans(run: RunDirectory) -> None:
    """SIGKILL the processes that outlive their shim, and those that they fork meanwhile.

    Where the agent runs as root, the kernel has killed them with the shim. Else they may be the main process,
    the other processes of its session, and those in the container's cgroups.
    """
    killed: set[ProcessIdentity] = set()
    while orphans := _orphans(run) - killed:
        for process in orphans:
            with contextlib.suppress(PermissionError):  # a program that has changed its user
                processes.send_signal(process, signal.SIGKILL)
        killed |= orphans


def _orphans(run: RunDirectory) -> set[ProcessIdentity]:
    identities = run.identities()
    if identities is None or identities.main.boot_id != procfs.boot_id():
        return set()
    main = identities.main
    orphans = processes.of_session(main)
    if processes.is_alive(main):  # it may not have made its session yet
        orphans.add(main)
    for group in run.cgroups():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            pids = Path(group, "cgroup.procs").read_text().split()
            orphans |= {process for pid in pids if (process := processes.identity_of(int(pid))) is not None}
    return orphans


async def _send_sigterm(run: RunDirectory) -> None:
    """Send SIGTERM to the main process as soon as it is recorded and a descriptor is free."""
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
