"""Moves Envoy's heap into huge pages as it grows (docs/decisions/envoy-huge-pages.md).

The kernel lets only a process with CAP_SYS_NICE do so for another; without it, Envoy keeps the pages that it
has.
"""

import asyncio
import errno
import logging
import os
from dataclasses import dataclass

from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.system import huge_pages, processes, procfs
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Between looks at the size of Envoy's memory."""
GROWTH_BYTES = 4 * huge_pages.HUGE
"""Growth after which Envoy's memory is read again: 1,000 services take 140 MiB."""
PAUSE_SECONDS = 0.005
"""Between two regions: Envoy waits while one is copied, for a fraction of a millisecond."""
_IMPOSSIBLE = (errno.EPERM, errno.ENOSYS)
"""No CAP_SYS_NICE, and a kernel before 5.10; a kernel before 6.1 answers EINVAL."""


@dataclass
class _Heap:
    """One Envoy's memory after the last pass."""

    process: ProcessIdentity
    resident: int = 0


async def keep_in_huge_pages(envoy: EnvoyProcess) -> None:
    """Move the heap of whichever Envoy runs, until cancelled or refused."""
    heap: _Heap | None = None
    try:
        while True:
            running = envoy.running()
            if running is not None:
                if heap is None or heap.process != running.process:
                    heap = _Heap(running.process)
                resident = procfs.resident_bytes(heap.process.pid)
                heap.resident = min(heap.resident, resident)
                if resident - heap.resident >= GROWTH_BYTES:
                    await _move(heap.process)
                    heap.resident = procfs.resident_bytes(heap.process.pid)
            await asyncio.sleep(CHECK_SECONDS)
    except OSError as error:
        log.info("Envoy's heap keeps its pages: %s", error.strerror)


async def _move(process: ProcessIdentity) -> None:
    """Move every region that can be moved.

    Raises:
        OSError: none ever can.
    """
    pidfd = processes.open_pidfd(process)
    if pidfd is None:
        return
    try:
        for region in await asyncio.to_thread(huge_pages.heap_regions, process.pid):
            try:
                await asyncio.to_thread(huge_pages.collapse, pidfd, region)
            except OSError as error:
                if error.errno in _IMPOSSIBLE:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
    except (FileNotFoundError, ProcessLookupError):
        return  # Envoy has ended
    finally:
        os.close(pidfd)
