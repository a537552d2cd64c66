"""Cost of a change of endpoints or weights with many clusters: over the gateway's stream, and in a file.

The measurement behind docs/decisions/envoy-configuration.md. Run it as an ordinary user: Envoy then has that
user's limits (128 inotify instances by default).
"""

import argparse
import os
from pathlib import Path

from rig import interrupts
from rig.data_plane import endpoint_file
from rig.data_plane.envoy_world import service, world
from rig.harness import interval, percentile, process_seconds, report, resident_mib

from serving import clock
from serving.router.plan.service import Endpoint, GatewayService


def two_arms(n: int, *, more: bool = False, weight: int = 9000) -> GatewayService:
    """Return a service of two arms; with `more` the first arm has a second endpoint."""
    where = [Endpoint(f"127.78.{n // 250}.{n % 250 + 1}", 8080)]
    extra = [Endpoint("127.79.0.1", 8080)] if more else []
    return service(f"service-{n:04}", [("stable", weight, where + extra), ("canary", 10_000 - weight, where)])


def inotify_instances(pid: int) -> int:
    links = (str(f.readlink()) for f in Path(f"/proc/{pid}/fd").iterdir())
    return sum("inotify" in link for link in links)


async def measure(clusters: int, changes: int) -> dict[str, object]:
    services = [two_arms(n) for n in range(clusters // 2)]
    async with world() as (gateway, envoy):
        started = clock.monotonic()
        await gateway.serve(services)
        cold = clock.monotonic() - started
        endpoint, weight = [], []
        cpu = process_seconds(envoy.pid)
        for n in range(1, changes + 1):
            started = clock.monotonic()
            await gateway.serve([two_arms(0, more=n % 2 == 1)])
            endpoint.append(1000 * (clock.monotonic() - started))
        cpu = process_seconds(envoy.pid) - cpu
        for n in range(1, changes + 1):
            started = clock.monotonic()
            await gateway.serve([two_arms(0, weight=9000 - 10 * n)])
            weight.append(1000 * (clock.monotonic() - started))
        return {
            "clusters": clusters,
            "coldSeconds": round(cold, 3),
            "endpointChangeMs": interval(endpoint),
            "endpointChangeP95Ms": round(percentile(endpoint, 95), 1),
            "weightChangeMs": interval(weight),
            "weightChangeP95Ms": round(percentile(weight, 95), 1),
            "envoyCpuMsPerEndpointChange": round(1000 * cpu / changes, 1),
            "residentMiB": resident_mib(envoy.pid),
            "inotifyInstances": inotify_instances(envoy.pid),
        }


async def main(*, quick: bool) -> None:
    sizes = [200, 1000, 2000]
    changes = 10 if quick else 40
    results: dict[str, object] = {"user": os.geteuid()}
    results["stream"] = [await measure(size, changes) for size in sizes]
    clusters = [c for n in range(sizes[-1] // 2) for c in two_arms(n).clusters]
    results["file"] = [await endpoint_file.measure(clusters[:size], changes) for size in sizes]
    report("endpoint_delivery", results, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    interrupts.run(main(quick=parser.parse_args().quick))
