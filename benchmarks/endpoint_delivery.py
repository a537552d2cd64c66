"""What a change of endpoints and of weights costs at many clusters, with endpoints inline in the clusters' file.

The measurement behind docs/decisions.md, "How endpoints reach Envoy". Run it as an ordinary user: Envoy then
has that user's limits (128 inotify instances by default).
"""

import argparse
import asyncio
import os
from pathlib import Path

from rig.envoy_world import service, world
from rig.harness import interval, percentile, process_seconds, report, resident_mib

from serving import clock
from serving.router.plan import Endpoint, Service


def services(count: int, changed: int, weight: int) -> list[Service]:
    """`count` services of two arms; the first has as many endpoints as `changed` says."""
    found = []
    for n in range(count):
        where = [Endpoint(f"127.78.{n // 250}.{n % 250 + 1}", 8080)]
        extra = [Endpoint("127.79.0.1", 8080)] if n == 0 and changed % 2 else []
        share = weight if n == 0 else 9000
        arms = [("stable", share, where + extra), ("candidate", 10_000 - share, where)]
        found.append(service(f"service-{n:04}", arms))
    return found


def inotify_instances(pid: int) -> int:
    links = (str(f.readlink()) for f in Path(f"/proc/{pid}/fd").iterdir())
    return sum("inotify" in link for link in links)


async def measure(clusters: int, changes: int) -> dict[str, object]:
    count = clusters // 2
    async with world() as (found, envoy):
        started = clock.monotonic()
        await found.serve(services(count, 0, 9000))
        cold = clock.monotonic() - started
        endpoint, weight = [], []
        cpu = process_seconds(envoy.pid)
        for n in range(1, changes + 1):
            started = clock.monotonic()
            await found.serve(services(count, n, 9000))
            endpoint.append(1000 * (clock.monotonic() - started))
        cpu = process_seconds(envoy.pid) - cpu
        for n in range(1, changes + 1):
            started = clock.monotonic()
            await found.serve(services(count, changes, 9000 - 10 * n))
            weight.append(1000 * (clock.monotonic() - started))
        return {
            "clusters": clusters, "coldSeconds": round(cold, 3),
            "endpointChangeMs": interval(endpoint), "endpointChangeP95Ms": round(percentile(endpoint, 95), 1),
            "weightChangeMs": interval(weight), "weightChangeP95Ms": round(percentile(weight, 95), 1),
            "envoyCpuMsPerEndpointChange": round(1000 * cpu / changes, 1),
            "residentMiB": resident_mib(envoy.pid), "inotifyInstances": inotify_instances(envoy.pid),
            "clustersFileMiB": round((found.data_dir.gateway / "clusters.pb").stat().st_size / 2**20, 2),
            "routesFileMiB": round((found.data_dir.gateway / "public.pb").stat().st_size / 2**20, 2),
        }  # fmt: skip


async def main(*, quick: bool) -> None:
    sizes = [200, 1000, 2000]
    results = [await measure(size, 10 if quick else 40) for size in sizes]
    report("endpoint_delivery", {"user": os.geteuid(), "runs": results}, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(quick=parser.parse_args().quick))
