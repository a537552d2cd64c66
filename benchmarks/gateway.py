"""Throughput and latency of the gateway beside other proxies that split the same traffic, in one run.

Every proxy is pinned to one core, load and backends to another. The bar: the gateway has at least 0.9 of the
throughput of the smallest Envoy configuration. These two take turns of a second in the order ABBA, and a
ratio is of one such turn, because the speed of a shared machine changes by a factor of two within seconds.
Two processes of one configuration differ too, by up to 6 % on such a machine. So new processes are started
for every few turns, and the interval is that of the means of the processes. The other proxies follow in
rounds.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from rig import interrupts
from rig.data_plane import proxies, wrk
from rig.data_plane.envoy_world import EnvoyWorld, service, world
from rig.data_plane.streams import streams
from rig.harness import Bar, at_least, interval, median, report, resident_mib

from serving.router.envoy.huge_heap import CHECK_SECONDS
from serving.router.plan.service import Endpoint, GatewayService

BAR = 0.9
BASE = "minimal-envoy"
OTHERS = (BASE, "nginx", "haproxy", "aiohttp", "fastapi-httpx")
OURS, OURS_1000 = "slipway", "slipway-1000-services"
BODY = '{"outputs":[{"name":"probability","shape":[1,10],"datatype":"FP32","data":[0,0,0,0,0,0,0,1,0,0]}]}'


def arms(ports: tuple[int, int]) -> GatewayService:
    stable, canary = (Endpoint("127.0.0.1", port) for port in ports)
    return service("digits", [("stable", 9000, [stable]), ("canary", 1000, [canary])])


def bystanders(count: int) -> list[GatewayService]:
    services = []
    for n in range(count):
        where = [Endpoint(f"127.78.{n // 250}.{n % 250 + 1}", 8080)]
        services.append(service(f"other-{n:04}", [("stable", 9000, where), ("canary", 1000, where)]))
    return services


@dataclass
class Running:
    """Proxies that run, by name."""

    urls: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    """Of ours and the smallest Envoy."""
    resident: dict[str, float] = field(default_factory=dict)
    """Resident memory of ours in MiB."""
    warm_up: dict[str, int] = field(default_factory=dict)
    """Answers per second of the first load."""


async def main(*, quick: bool) -> None:
    if wrk.missing():
        sys.exit("wrk is not installed: apt-get install wrk")
    starts, turns, rounds, seconds = (2, 2, 1, 1.0) if quick else (10, 5, 3, 4.0)
    others = [kind for kind in OTHERS if proxies.available(kind)]
    for kind in set(OTHERS) - set(others):
        print(f"SKIPPED {kind}: it is not installed (apt-get install nginx-light haproxy)", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-gateway-")))
        ports = stack.enter_context(proxies.backends(folder, BODY.replace('"', '\\"')))
        runs: dict[str, list[wrk.Load]] = {name: [] for name in (OURS, OURS_1000, *others)}
        ratios: dict[str, list[float]] = {OURS: [], OURS_1000: []}
        for _ in range(starts):
            async with started(folder, ports, [BASE]) as running:
                for ours, means in ratios.items():
                    means.append(fmean([await turn(folder, running, runs, ours) for _ in range(turns)]))
        async with started(folder, ports, others) as running:
            for _ in range(rounds):
                for name in others[1:]:
                    runs[name].append(await wrk.load(folder, running.urls[name], seconds))
            half = {}
            for name, url in running.urls.items():
                rate = median([run.rate for run in runs[name]]) / 2
                run = await wrk.load(folder, url, seconds if quick else 3 * seconds, rate)
                half[name] = {"rate": run.rate, "failed": run.failed, "p50Ms": run.p50, "p99Ms": run.p99}
        results = {
            name: {
                "requestsPerSecond": interval([run.rate for run in loads]),
                "failed": sum(run.failed for run in loads),
                "p50Ms": round(median([run.p50 for run in loads]), 2),
                "p99Ms": round(median([run.p99 for run in loads]), 2),
                "halfLoad": half[name],
            }
            for name, loads in runs.items()
        }
        summary = {"proxies": results, "residentMiB": running.resident, "warmUp": running.warm_up}
        summary["streams"] = await streams(1000, 3 if quick else 20)
        summary["processes"] = {name: interval(means, fmean) for name, means in ratios.items()}
        summary["processorMicros"] = {name: processor_micros(runs[name]) for name in running.pids}
        report("gateway", summary, bars(ratios))


@contextlib.asynccontextmanager
async def started(folder: Path, ports: tuple[int, int], others: Sequence[str]) -> AsyncIterator[Running]:
    """Start ours, with one service and with 1,000 more, and others; yield them when their heaps are moved."""
    running = Running()
    async with contextlib.AsyncExitStack() as stack:
        for name, extra in ((OURS, 0), (OURS_1000, 1000)):
            gateway, pid = await our_world(stack)
            await gateway.serve([arms(ports), *bystanders(extra)])
            running.urls[name] = f"http://127.0.0.1:{gateway.port}/default/digits/v2/models/digits/infer"
            running.pids[name], running.resident[name] = pid, resident_mib(pid)
        for kind in others:
            port = stack.enter_context(proxies.contender(kind, folder, ports))
            running.urls[kind] = f"http://127.0.0.1:{port}/v2/models/digits/infer"
            if kind == BASE:
                running.pids[kind] = proxies.listener(port)
        for name, url in running.urls.items():
            load = await wrk.load(folder, url, max(1.0, 2 * CHECK_SECONDS / len(running.urls)))
            running.warm_up[name] = round(load.rate)
        yield running


async def turn(folder: Path, running: Running, runs: dict[str, list[wrk.Load]], ours: str) -> float:
    """Load ours, the smallest Envoy twice, and ours again; return the ratio of throughputs."""
    rates = {ours: 0.0, BASE: 0.0}
    for name in (ours, BASE, BASE, ours):
        run = await wrk.load(folder, running.urls[name], 1.0, pid=running.pids[name])
        runs[name].append(run)
        rates[name] += run.rate
    return rates[ours] / rates[BASE]


def processor_micros(runs: list[wrk.Load]) -> dict[str, object]:
    """Processor time of Envoy for one answer, which waiting for a core does not change."""
    return {
        "user": interval([run.user_micros for run in runs]),
        "kernel": interval([run.kernel_micros for run in runs]),
    }


def bars(ratios: dict[str, list[float]]) -> list[Bar]:
    return [
        at_least(f"throughput of {name} / smallest Envoy configuration", interval(means, fmean), BAR)
        for name, means in ratios.items()
    ]


async def our_world(stack: contextlib.AsyncExitStack) -> tuple[EnvoyWorld, int]:
    """The gateway's Envoy, all its threads on the proxies' core."""
    gateway, envoy = await stack.enter_async_context(world())
    for thread in os.listdir(f"/proc/{envoy.pid}/task"):  # noqa: PTH208 a path of numbers, in memory
        os.sched_setaffinity(int(thread), {int(proxies.PROXY_CORE)})
    return gateway, envoy.pid


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
