"""Throughput and latency of the gateway beside other proxies that split the same traffic, in one run.

Every proxy is pinned to one core, load and backends to another. The bar: the gateway has at least 0.9 of the
throughput of the smallest Envoy configuration. These two take turns of a tenth of a second, because the speed
of a shared machine changes by a factor of two within seconds. Two processes of one configuration differ too,
by up to 6 % on such a machine. So new processes are started several times, and the interval is that of the
ratios of the starts. Latencies, and the other proxies, follow in rounds.
"""

import argparse
import contextlib
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

from serving.router.envoy.process.huge_heap import CHECK_SECONDS
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
    starts, alternated, rounds, seconds = (2, 1.0, 1, 1.0) if quick else (14, 8.0, 3, 4.0)
    others = [kind for kind in OTHERS if proxies.available(kind)]
    for kind in set(OTHERS) - set(others):
        print(f"SKIPPED {kind}: it is not installed (apt-get install nginx-light haproxy)", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-gateway-")))
        ports = stack.enter_context(proxies.backends(folder, BODY.replace('"', '\\"')))
        pairs = Pairs(folder, alternated)
        for _ in range(starts):
            async with started(folder, ports, [BASE]) as running:
                for ours in (OURS, OURS_1000):
                    await pairs.measure(running, ours)
        runs: dict[str, list[wrk.WrkRun]] = {name: [] for name in (OURS, OURS_1000, *others)}
        async with started(folder, ports, others) as running:
            for _ in range(rounds):
                for name, url in running.urls.items():
                    runs[name].append(await wrk.load(folder, url, seconds))
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
        summary["ofSmallestEnvoy"] = {name: interval(seen, fmean) for name, seen in pairs.ratios.items()}
        summary["processorMicros"] = pairs.processor_micros()
        report("gateway", summary, bars(pairs.ratios))


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


class Pairs:
    """Proxies measured beside the smallest Envoy configuration."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """`folder` is wrk's; each proxy of a pair has load for `seconds`."""
        self.ratios: dict[str, list[float]] = {}
        """Throughput divided by that of the smallest configuration, of each start, by name."""
        self._folder = folder
        self._seconds = seconds
        self._throughputs: dict[str, list[wrk.Throughput]] = {}

    async def measure(self, running: Running, name: str) -> None:
        """Measure a proxy that runs."""
        urls = {each: running.urls[each] for each in (name, BASE)}
        pair = await wrk.alternate(self._folder, urls, running.pids, self._seconds)
        for each, throughput in pair.items():
            if throughput.failed:
                raise RuntimeError(f"{throughput.failed} requests to {each} failed")
            self._throughputs.setdefault(each, []).append(throughput)
        self.ratios.setdefault(name, []).append(pair[name].rate / pair[BASE].rate)

    def processor_micros(self) -> dict[str, object]:
        """Return the processor time for one answer, which waiting for a core does not change, by name."""
        return {
            name: {
                "user": interval([each.user_micros for each in throughputs]),
                "kernel": interval([each.kernel_micros for each in throughputs]),
            }
            for name, throughputs in self._throughputs.items()
        }


def bars(ratios: dict[str, list[float]]) -> list[Bar]:
    return [
        at_least(f"throughput of {name} / smallest Envoy configuration", interval(seen, fmean), BAR)
        for name, seen in ratios.items()
    ]


async def our_world(stack: contextlib.AsyncExitStack) -> tuple[EnvoyWorld, int]:
    """The gateway's Envoy, all its threads on the proxies' core."""
    gateway, envoy = await stack.enter_async_context(world())
    proxies.pin(envoy.pid)
    return gateway, envoy.pid


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
