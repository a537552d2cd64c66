"""Waits on the event loop for the end of processes, children of this one or not."""

import asyncio
import contextlib
import os

from serving.system import processes
from serving.system.processes import ProcessIdentity
from serving.system.readable import until_readable


async def wait_for_exit(pidfd: int) -> None:
    """Wait until the process of a pidfd has ended, reap it if it is a child, and close the descriptor."""
    try:
        await until_readable(pidfd)
    finally:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 it has ended: no wait
        os.close(pidfd)


async def has_ended_within(identity: ProcessIdentity, seconds: float) -> bool:
    """Wait until exactly this process has ended, for at most `seconds`; return whether it has."""
    pidfd = processes.open_pidfd(identity)
    if pidfd is None:
        return True
    try:
        async with asyncio.timeout(seconds):
            await until_readable(pidfd)
    except TimeoutError:
        return False
    finally:
        os.close(pidfd)
    return True
