"""From applied Inferences to ready ones whose Routes Envoy has accepted: duration, cost, and the cost of
idling.

API, controllers, gateway and Envoy are the real processes; the hollow node (`rig/hollow_node`) writes the
objects of a node and starts no process. One nginx answers for all replicas, so every revision is proven
through the gateway. N, N/2 and N/4 Inferences start cold, each number on a fresh data directory: the cost
must be linear in the number, and the cost of one change must not depend on the number of stored objects.

With `--kubeconfig`, the API, its controllers and its scheduler are those of a cluster that has no Pods
and no installation of Slipway; the node is `rig/hollow_kubelet`. The number grows to N/10, 3N/10 and N on the
one cluster, where the Inferences stay. All processes must run on this machine: their CPU time is read here.
"""

import argparse
import asyncio
import gc
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rig import interrupts
from rig.control_planes import ARMS, LIMIT_SECONDS, ControlPlane, cluster, machine, until
from rig.harness import Bar, report

from serving import clock
from serving.cli.machine.component import COLLECT_AFTER
from serving.kube import Kube
from serving.resources import kinds

BAR_SECONDS = 60.0
BAR_IDLE_PERCENT = 5.0
BAR_RATIO = 1.5
"""Highest cost of one Inference of N, relative to N/4, on a cluster to N/10; both contain a constant start-up
cost."""
IDLE_SECONDS = 15.0
CHANGES = 240
"""Some 15 s of changes, as long as idling is measured: both contain the same share of periodic work."""
AT_ONCE = 16


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: round(after[name] - before[name], 3) for name in before}


def inference(number: int, weight: int) -> dict[str, Any]:
    weights = zip(ARMS, (weight, 100 - weight), strict=True)
    return {
        "metadata": {"name": f"service-{number:04}", "namespace": "default"},
        "spec": {
            "framework": "sklearn",
            "predictors": [
                {"name": arm, "modelVersion": f"model-{arm}", "trafficWeight": share}
                for arm, share in weights
            ],
        },
    }


async def fill(on: ControlPlane, count: int, stored: int = 0) -> dict[str, Any]:
    """Apply Inferences until `count` are stored, and wait for all."""
    before, started = on.cpu(), clock.monotonic()
    first = int((await on.kube.list(kinds.NAMESPACE)).resource_version)
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            await on.kube.apply(kinds.INFERENCE, inference(number, 90))

    await asyncio.gather(*(one(number) for number in range(stored, count)))
    applied = clock.monotonic() - started
    await until(lambda: len(on.ready) >= count or None)
    seconds = clock.monotonic() - started
    await accepted(on.kube, count)
    cpu = spent(before, on.cpu())
    writes = int((await on.kube.list(kinds.NAMESPACE)).resource_version) - first
    new = count - stored
    return {
        "inferences": count,
        "seconds": round(seconds, 2),
        "appliedSeconds": round(applied, 2),
        "cpuSeconds": cpu,
        "writes": writes,
        "writesPerInference": round(writes / new, 1),
        "msPerInference": round(1000 * seconds / new, 2),
        "cpuMsPerInference": round(1000 * on.own(cpu) / new, 2),
    }


async def accepted(kube: Kube, count: int) -> None:
    """Check the accepted versions in the Routes themselves; Ready already implies them."""
    routes = (await kube.list(kinds.ROUTE)).items
    versions = [
        gateway["acceptedGeneration"] >= route["metadata"]["generation"] and bool(route["spec"]["segments"])
        for route in routes
        for gateway in (route.get("status") or {}).get("gateways") or []
    ]
    if len(versions) != count or not all(versions):
        raise RuntimeError(f"{sum(versions)} of {count} Routes are accepted")


async def settle(on: ControlPlane) -> None:
    """Wait until only Lease renewals write."""
    deadline = clock.monotonic() + LIMIT_SECONDS
    version = 0
    while clock.monotonic() < deadline:
        now = int((await on.kube.list(kinds.NAMESPACE)).resource_version)
        if now - version <= on.background_writes:
            return
        version = now
        await asyncio.sleep(2.0)
    raise RuntimeError("writes do not end")


async def idle(on: ControlPlane, seconds: float) -> dict[str, float]:
    """Return the percent of one core of each process."""
    before, started = on.cpu(), clock.monotonic()
    await asyncio.sleep(seconds)
    took = clock.monotonic() - started
    return {name: round(100 * cpu / took, 2) for name, cpu in spent(before, on.cpu()).items()}


async def change(on: ControlPlane, count: int, resting: Mapping[str, float]) -> dict[str, Any]:
    """Change the weights of Inferences one by one; each waits until Envoy has accepted the change.

    Args:
        on: the processes.
        count: Inferences that are stored.
        resting: percent of a core that each process takes without changes.
    """
    before, started = on.cpu(), clock.monotonic()
    first = int((await on.kube.list(kinds.NAMESPACE)).resource_version)
    for step in range(CHANGES):
        number = step * count // CHANGES
        weight = (50, 60)[step % 2]  # of fewer Inferences than changes, each change is one still
        written = await on.kube.apply(kinds.INFERENCE, inference(number, weight))
        name, generation = written["metadata"]["name"], written["metadata"]["generation"]
        await until(partial(on.reached, name, generation))
    took = clock.monotonic() - started
    cpu = spent(before, on.cpu())
    writes = int((await on.kube.list(kinds.NAMESPACE)).resource_version) - first
    net = {name: max(0.0, seconds - resting[name] / 100 * took) for name, seconds in cpu.items()}
    return {
        "stored": count,
        "ms": round(1000 * took / CHANGES, 2),
        "writesPerChange": round(writes / CHANGES, 1),
        "cpuMs": {name: round(1000 * seconds / CHANGES, 2) for name, seconds in net.items()},
        "cpuMsTotal": round(1000 * on.own(net) / CHANGES, 2),
    }


async def main(count: int) -> None:
    sizes = (count // 4, count // 2, count)
    filled, changed = [], []
    idling: dict[str, float] = {}
    for number, size in enumerate(sizes):
        async with machine(number) as on:
            filled.append(await fill(on, size))
            print(filled[-1], file=sys.stderr, flush=True)
            await settle(on)
            idling = await idle(on, IDLE_SECONDS)
            changed.append(await change(on, size, idling))
            print(changed[-1], file=sys.stderr, flush=True)
    linear = round(filled[-1]["cpuMsPerInference"] / filled[0]["cpuMsPerInference"], 2)
    constant = round(changed[-1]["cpuMsTotal"] / changed[0]["cpuMsTotal"], 2)
    own_idle = round(sum(idling.values()), 2)
    report(
        "controllers",
        {
            "cold": filled,
            "idlePercentOfACore": idling,
            "change": changed,
            "cpuPerInferenceRatio": linear,
            "cpuPerChangeRatio": constant,
        },
        [
            Bar(
                f"seconds until {count} Inferences of two predictors are ready",
                filled[-1]["seconds"],
                BAR_SECONDS,
                filled[-1]["seconds"] <= BAR_SECONDS,
            ),
            Bar(
                "idle, all processes together, percent of a core",
                own_idle,
                BAR_IDLE_PERCENT,
                own_idle <= BAR_IDLE_PERCENT,
            ),
            Bar(
                f"CPU per Inference at {count}, as a multiple of that at {count // 4}",
                linear,
                BAR_RATIO,
                linear <= BAR_RATIO,
            ),
            Bar(
                f"CPU of one change with {count} stored, as a multiple of that with {count // 4}",
                constant,
                BAR_RATIO,
                constant <= BAR_RATIO,
            ),
        ],
    )


async def main_on_cluster(kubeconfig: Path, count: int) -> None:
    """Report time, CPU, memory and the cost of one change while the number of Inferences grows."""
    filled, changed, idling, memory = [], [], [], []
    stored = 0
    async with cluster(kubeconfig) as on:
        await settle(on)
        empty = on.memory()
        for size in (count // 10, 3 * count // 10, count):
            filled.append(await fill(on, size, stored))
            print(filled[-1], file=sys.stderr, flush=True)
            stored = size
            await settle(on)
            memory.append(on.memory())
            idling.append(await idle(on, IDLE_SECONDS))
            print(memory[-1], idling[-1], file=sys.stderr, flush=True)
            changed.append(await change(on, size, idling[-1]))
            print(changed[-1], file=sys.stderr, flush=True)
        grown = {name: round(1024 * (mib - empty[name]) / count, 1) for name, mib in memory[-1].items()}
        own_idle = round(on.own(idling[-1]), 2)
    linear = round(filled[-1]["cpuMsPerInference"] / filled[0]["cpuMsPerInference"], 2)
    constant = round(changed[-1]["cpuMsTotal"] / changed[0]["cpuMsTotal"], 2)
    report(
        "controllers on a cluster",
        {
            "cold": filled,
            "idlePercentOfACore": idling,
            "residentMiB": memory,
            "residentKiBPerInference": grown,
            "change": changed,
            "cpuPerInferenceRatio": linear,
            "cpuPerChangeRatio": constant,
        },
        [
            Bar(
                "idle, Slipway's processes together, percent of a core",
                own_idle,
                BAR_IDLE_PERCENT,
                own_idle <= BAR_IDLE_PERCENT,
            ),
            Bar(
                f"CPU per Inference from {3 * count // 10} to {count}, as a multiple of that up to"
                f" {count // 10}",
                linear,
                BAR_RATIO,
                linear <= BAR_RATIO,
            ),
            Bar(
                f"CPU of one change with {count} stored, as a multiple of that with {count // 10}",
                constant,
                BAR_RATIO,
                constant <= BAR_RATIO,
            ),
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="150 Inferences instead of 1,000")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="of an empty cluster")
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_AFTER)  # this process reads all changes of Inferences beside the measured ones
    number = 150 if options.quick else options.count
    interrupts.run(main_on_cluster(options.kubeconfig, number) if options.kubeconfig else main(number))
