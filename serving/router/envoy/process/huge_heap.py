"""Moves Envoy's heap into huge pages as it grows (docs/decisions/envoy-huge-pages.md).

The kernel lets only a process with CAP_SYS_NICE move another process's memory; without CAP_SYS_NICE, Envoy's
heap remains in small pages.
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
"""Between two readings of Envoy's resident memory."""
GROWTH_BYTES = 4 * huge_pages.HUGE
"""Growth of Envoy's resident memory after which its heap is moved again; 1,000 services take 140 MiB."""
PAUSE_SECONDS = 0.005
"""Between two regions: Envoy waits while a region is copied, for a fraction of a millisecond."""
_NEVER_POSSIBLE = (errno.EPERM, errno.ENOSYS)
"""Errors of every region: no CAP_SYS_NICE, and a kernel before 5.10. EINVAL is not among them, as it may
concern one region; a kernel before 6.1 answers EINVAL for all of them."""


@dataclass
class _Heap:
    """The memory of one Envoy after its heap was moved last."""

    process: ProcessIdentity
    resident_bytes: int = 0
    """0 before the first move, so that a new or adopted Envoy is moved at once."""


async def keep_in_huge_pages(envoy: EnvoyProcess) -> None:
    """Move the heap of the running Envoy after each growth, until cancelled or until the kernel refuses."""
    heap: _Heap | None = None
    try:
        while True:
            running = envoy.running()
            if running is not None:
                if heap is None or heap.process != running.process:
                    heap = _Heap(running.process)
                resident_bytes = procfs.resident_bytes(heap.process.pid)
                # Memory that Envoy has freed and takes again is in small pages, so it counts as growth.
                heap.resident_bytes = min(heap.resident_bytes, resident_bytes)
                if resident_bytes - heap.resident_bytes >= GROWTH_BYTES:
                    await _move(heap.process)
                    heap.resident_bytes = procfs.resident_bytes(heap.process.pid)
            await asyncio.sleep(CHECK_SECONDS)
    except OSError as error:
        log.info("Envoy's heap keeps its pages: %s", error.strerror)


async def _move(process: ProcessIdentity) -> None:
    """Move every region of a process's heap that the kernel moves; nothing if the process has ended.

    Raises:
        OSError: the kernel will not move any region of this process.
    """
    pidfd = processes.open_pidfd(process)
    if pidfd is None:
        return
    try:
        for region in await asyncio.to_thread(huge_pages.heap_regions, process.pid):
            try:
                await asyncio.to_thread(huge_pages.collapse, pidfd, region)
            except OSError as error:
                if error.errno in _NEVER_POSSIBLE:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
    except (FileNotFoundError, ProcessLookupError):
        return  # Envoy has ended
    finally:
        os.close(pidfd)
