"""Throughput of the gateway with Envoy's code and heap in huge pages, beside the same in small ones, in one
run.

Variants and the smallest Envoy configuration take turns of a second in the order ABBA, as in `gateway.py`.
The bar: huge pages do not cost throughput. Moving a heap needs CAP_SYS_NICE.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import gateway
from rig import interrupts
from rig.data_plane import proxies, wrk
from rig.data_plane.envoy_world import world
from rig.harness import Bar, at_least, interval, median, report, resident_mib

from serving import clock
from serving.router.envoy.binary import find_envoy
from serving.router.envoy.huge_heap import CHECK_SECONDS
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
    turns = 2 if quick else 20
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-huge-pages-")))
        ports = stack.enter_context(proxies.backends(folder, gateway.BODY.replace('"', '\\"')))
        urls, resident = {}, {}
        for count in SERVICES:
            for variant, options in VARIANTS.items():
                envoy, running = await stack.enter_async_context(world(**options))
                for thread in os.listdir(f"/proc/{running.pid}/task"):  # noqa: PTH208 numbers, in memory
                    os.sched_setaffinity(int(thread), {int(proxies.PROXY_CORE)})
                await envoy.serve([gateway.arms(ports), *gateway.bystanders(count - 1)])
                name = f"{variant}, {count} services"
                urls[name] = f"http://127.0.0.1:{envoy.port}/default/digits/v2/models/digits/infer"
                resident[name] = running.pid
        port = stack.enter_context(proxies.contender(gateway.BASE, folder, ports))
        urls[gateway.BASE] = f"http://127.0.0.1:{port}/v2/models/digits/infer"
        pids = resident | {gateway.BASE: proxies.listener(port)}
        for url in urls.values():
            await wrk.load(folder, url, 2 * CHECK_SECONDS / len(urls))  # warm, and until the heaps are moved
        runs: dict[str, list[wrk.Load]] = {name: [] for name in urls}
        ratios: dict[str, list[float]] = {name: [] for name in urls if name != gateway.BASE}
        for _ in range(turns):
            for name, seen in ratios.items():
                seen.append(await gateway.turn(folder, urls, pids, runs, name))
        summary = {
            "processorMicros": {name: gateway.processor_micros(seen) for name, seen in runs.items()},
            "ofSmallestEnvoy": {name: interval(values) for name, values in ratios.items()},
            "residentMiB": {name: resident_mib(pid) for name, pid in resident.items()},
            "inHugePagesMiB": {name: huge_mib(pid) for name, pid in resident.items()},
            "copyMs": round(1000 * median([copy_seconds() for _ in range(COPIES)]), 1),
        }
        report("huge_pages", summary, bars(ratios))


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
        rows.append(at_least(f"throughput of huge / small pages, {count} services", interval(gains), 1.0))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
