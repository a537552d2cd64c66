"""Ends an Envoy: first its requests in flight, then the process.

This module decides neither when Envoy has to end, nor whether its listeners close before.
"""

import asyncio
import logging
import signal

from serving import clock
from serving.router.envoy.admin import Admin
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.system import processes
from serving.system.process_exit import has_ended_within

log = logging.getLogger(__name__)

FORCED_SECONDS = 2.0
"""After SIGTERM Envoy exits in 0.1 s; after this time it gets SIGKILL."""
POLL_SECONDS = 0.05
"""Between questions to the admin socket, such as for the number of requests in flight."""


async def wait_until_idle(admin: Admin, seconds: float) -> None:
    """Wait until no request is in flight, at most for this time.

    Raises:
        errors.Unavailable: Envoy does not answer.
    """
    deadline = clock.monotonic() + seconds
    while await admin.active():
        if clock.monotonic() > deadline:
            log.warning("requests were still in flight after %s s of draining", seconds)
            return
        await asyncio.sleep(POLL_SECONDS)


async def end_envoy(process: EnvoyProcess) -> None:
    """End the Envoy of a directory, if it runs."""
    running = process.running()
    if running is None:
        return
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        processes.send_signal(running.process, signal_number)
        if await has_ended_within(running.process, FORCED_SECONDS):
            return
