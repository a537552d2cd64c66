"""Throughput of the gateway with Envoy's code and heap in huge pages, beside the same in small ones, in one
run.

Each variant takes short turns with the smallest Envoy configuration, and new processes are started several
times, as in `gateway.py`.
The bar: huge pages do not cost throughput. Moving a heap needs CAP_SYS_NICE.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import gateway
from rig import interrupts
from rig.data_plane import proxies, wrk
from rig.data_plane.envoy_world import world
from rig.harness import Bar, at_least, interval, median, report, resident_mib

from serving import clock
from serving.router.envoy.process.binary import find_envoy
from serving.router.envoy.process.huge_heap import CHECK_SECONDS
from serving.system import huge_pages

VARIANTS: dict[str, dict[str, Any]] = {
    "small": {"huge_pages": False, "moves_heap": False},
    "code": {"moves_heap": False},
    "code-and-heap": {},
}
"""Options of `world`: the second is what an unprivileged user has."""
SERVICES = (1, 1000)
COPIES = 5


async def main(*, quick: bool) -> None:
    if wrk.missing():
        sys.exit("wrk is not installed: apt-get install wrk")
    if huge_pages.huge_bytes() != huge_pages.HUGE:
        sys.exit("the kernel has no pages of 2 MiB")
    starts, alternated = (1, 1.0) if quick else (8, 5.0)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-huge-pages-")))
        ports = stack.enter_context(proxies.backends(folder, gateway.BODY.replace('"', '\\"')))
        names = [name for name, _, _ in variants()]
        pairs = gateway.Pairs(folder, alternated)
        for _ in range(starts):
            async with started(folder, ports) as running:
                for name in names:
                    await pairs.measure(running, name)
                in_huge_pages = {name: huge_mib(running.pids[name]) for name in names}
        summary = {
            "processorMicros": pairs.processor_micros(),
            "ofSmallestEnvoy": {name: interval(seen, fmean) for name, seen in pairs.ratios.items()},
            "residentMiB": running.resident,
            "inHugePagesMiB": in_huge_pages,
            "copyMs": round(1000 * median([copy_seconds() for _ in range(COPIES)]), 1),
        }
        report("huge_pages", summary, bars(pairs.ratios))


def variants() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the name, the number of services, and the options of `world` of each variant."""
    for count in SERVICES:
        for variant, options in VARIANTS.items():
            yield f"{variant}, {count} services", count, options


@contextlib.asynccontextmanager
async def started(folder: Path, ports: tuple[int, int]) -> AsyncIterator[gateway.Running]:
    """Start all variants and the smallest Envoy; yield them when their heaps are moved."""
    running = gateway.Running()
    async with contextlib.AsyncExitStack() as stack:
        for name, count, options in variants():
            envoy, process = await stack.enter_async_context(world(**options))
            proxies.pin(process.pid)
            await envoy.serve([gateway.arms(ports), *gateway.bystanders(count - 1)])
            running.urls[name] = f"http://127.0.0.1:{envoy.port}/default/digits/v2/models/digits/infer"
            running.pids[name] = process.pid
        port = stack.enter_context(proxies.contender(gateway.BASE, folder, ports))
        running.urls[gateway.BASE] = f"http://127.0.0.1:{port}/v2/models/digits/infer"
        running.pids[gateway.BASE] = proxies.listener(port)
        for url in running.urls.values():
            await wrk.load(folder, url, 2 * CHECK_SECONDS / len(running.urls))
        running.resident = {name: resident_mib(running.pids[name]) for name, _, _ in variants()}
        yield running


def huge_mib(pid: int) -> float:
    """Return the memory of a process in huge pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kinds = ("AnonHugePages:", "ShmemPmdMapped:")
    return round(sum(int(line.split()[1]) for line in lines if line.startswith(kinds)) / 1024, 1)


def copy_seconds() -> float:
    """Return the time that one copy of Envoy takes."""
    started = clock.monotonic()
    os.close(huge_pages.program(find_envoy()))
    return clock.monotonic() - started


def bars(ratios: dict[str, list[float]]) -> list[Bar]:
    rows = []
    for count in SERVICES:
        small = ratios[f"small, {count} services"]
        huge = ratios[f"code-and-heap, {count} services"]
        gains = [after / before for before, after in zip(small, huge, strict=True)]
        rows.append(
            at_least(f"throughput of huge / small pages, {count} services", interval(gains, fmean), 1.0)
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
