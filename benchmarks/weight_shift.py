"""From the API's write of a Route's weights to the first request that the new split serves.

API and gateway are the real processes. 500 services are stored, endpoints of others change, and wrk loads the
service at half of the gateway's throughput. All weight moves from one arm to the other, so the first answer
of the new arm is the moment of the change; afterwards a 70/30 split is counted.
"""

import argparse
import asyncio
import contextlib
import math
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from rig import interrupts
from rig.data_plane import proxies, wrk
from rig.harness import Bar, at_most, interval, median, percentile, report

from serving import clock, errors
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.resources import kinds
from serving.resources.names import ARM_HEADER, SERVICE_NAME_LABEL
from serving.router.gateway import stop_everything
from serving.settings import DEFAULTS

BAR_MS = 100.0
ARMS = ("stable", "canary")
CHURN_SECONDS = 0.5
START_SECONDS = 60.0
SPLIT = 0.7


def route(name: str, stable: int) -> dict[str, Any]:
    backends = [
        {
            "name": f"{name}-{arm}",
            "arm": arm,
            "service": f"{name}-{arm}",
            "port": 8080,
            "modelVersion": f"{name}-{arm}",
        }
        for arm in ARMS
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"inference": name, "backends": backends, "segments": segments(name, stable)},
    }


def segments(name: str, stable: int) -> list[dict[str, Any]]:
    sizes = zip(ARMS, (stable, 10_000 - stable), strict=True)
    return [{"backend": f"{name}-{arm}", "size": size} for arm, size in sizes if size]


def endpoints(service: str, addresses: Sequence[str], port: int) -> dict[str, Any]:
    return {
        "metadata": {"name": service, "namespace": "default", "labels": {SERVICE_NAME_LABEL: service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [a], "conditions": {"ready": True}} for a in addresses],
        "ports": [{"name": "http", "port": port}],
    }


@contextlib.contextmanager
def components(root: Path, api_port: int, gateway_port: int) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    DataDir(root).config.write_text(f"api: {{port: {api_port}}}\ngateway: {{port: {gateway_port}}}\n")
    with contextlib.ExitStack() as stack:
        for name, port in (("api", api_port), ("gateway", gateway_port)):
            command = ["component", name, "--data-dir", str(root)]
            both = f"{proxies.PROXY_CORE},{proxies.LOAD_CORE}"
            stack.enter_context(proxies.running(both, port, sys.executable, "-m", "serving.app", *command))
        yield


async def store(kube: Kube, services: int, ports: tuple[int, int]) -> None:
    """Create every Route with its EndpointSlices; the first one gets the load."""
    limit = asyncio.Semaphore(16)

    async def one(n: int) -> None:
        name = name_of(n)
        async with limit:
            for arm, port in zip(ARMS, ports, strict=True):
                where = ["127.0.0.1"] if n == 0 else [f"127.78.{n // 250}.{n % 250 + 1}"]
                await kube.apply(kinds.ENDPOINT_SLICE, endpoints(f"{name}-{arm}", where, port))
            await kube.apply(kinds.ROUTE, route(name, 10_000))

    await asyncio.gather(*(one(n) for n in range(services)))


def name_of(n: int) -> str:
    return "digits" if n == 0 else f"other-{n:04}"


async def churn(kube: Kube, services: int, done: list[int]) -> None:
    """Add and remove replicas of other services."""
    while True:
        n = 1 + len(done) % (services - 1)
        base = f"127.78.{n // 250}.{n % 250 + 1}"
        where = [base, "127.79.0.1"] if len(done) // (services - 1) % 2 == 0 else [base]
        await kube.apply(kinds.ENDPOINT_SLICE, endpoints(f"{name_of(n)}-stable", where, 8080))
        done.append(n)
        await asyncio.sleep(CHURN_SECONDS)


async def shift(kube: Kube, session: aiohttp.ClientSession, url: str, arm: str) -> tuple[float, int]:
    """Move all weight to an arm; return ms until it serves, and the number of failed requests."""
    spec = {"segments": segments("digits", 10_000 if arm == "stable" else 0)}
    failed = 0
    started = clock.monotonic()
    writing = asyncio.ensure_future(kube.patch(kinds.ROUTE, "default", "digits", {"spec": spec}))
    while True:
        async with session.get(url) as answer:
            failed += answer.status != 200
            if answer.headers.get(ARM_HEADER) == arm:
                break
        if clock.monotonic() > started + 30:
            raise RuntimeError(f"the split has not moved to {arm}")
    took = 1000 * (clock.monotonic() - started)
    await writing
    return took, failed


async def split(kube: Kube, session: aiohttp.ClientSession, url: str, count: int) -> float:
    """Return the share of the first arm after the weights were set to SPLIT and accepted."""
    spec = {"segments": segments("digits", round(10_000 * SPLIT))}
    generation = (await kube.patch(kinds.ROUTE, "default", "digits", {"spec": spec}))["metadata"][
        "generation"
    ]
    await accepted(kube, generation)
    arms: Counter[str] = Counter()
    for _ in range(count):
        async with session.get(url) as answer:
            arms[answer.headers.get(ARM_HEADER, "")] += 1
    return arms["stable"] / count


async def accepted(kube: Kube, generation: int, name: str = "digits") -> None:
    deadline = clock.monotonic() + START_SECONDS
    while True:
        route = await kube.get(kinds.ROUTE, "default", name)
        gateways = (route.get("status") or {}).get("gateways") or []
        if gateways and gateways[0]["acceptedGeneration"] >= generation:
            return
        if clock.monotonic() > deadline:
            raise RuntimeError(f"{name}: generation {generation} was not accepted: {gateways}")
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def product(folder: Path) -> AsyncIterator[tuple[Kube, int, int]]:
    data_dir = DataDir(folder / "data")
    ports = proxies.free_port(), proxies.free_port()
    settings = replace(DEFAULTS, gateway=replace(DEFAULTS.gateway, port=ports[1], drain_seconds=0.5))
    try:
        with components(data_dir.root, *ports):
            async with await connect(data_dir.kubeconfig, component="bench") as kube:
                yield kube, ports[1], envoy_pid(data_dir)
    finally:
        await stop_everything(data_dir, settings)


def envoy_pid(data_dir: DataDir) -> int:
    from serving.router.envoy.process.envoy_process import EnvoyProcess  # noqa: PLC0415 only here

    process = EnvoyProcess(data_dir, DEFAULTS.gateway).running()
    if process is None:
        raise errors.Unavailable("Envoy does not run")
    return process.pid


async def main(*, quick: bool) -> None:
    if wrk.missing():
        sys.exit("wrk is not installed: apt-get install wrk")
    services, shifts = 500, 30 if quick else 200
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-shift-")))
        ports = stack.enter_context(proxies.backends(folder, "{}"))
        kube, port, pid = await stack.enter_async_context(product(folder))
        proxies.pin(pid)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        started = clock.monotonic()
        await store(kube, services, ports)
        await accepted(kube, 1, name_of(services - 1))
        stored = clock.monotonic() - started
        url = f"http://127.0.0.1:{port}/default/digits/v2/health/ready"
        full = await wrk.load(folder, url, 2)
        loaded = asyncio.ensure_future(wrk.load(folder, url, 25 if quick else 150, full.rate / 2))
        churned: list[int] = []
        churning = asyncio.ensure_future(churn(kube, services, churned))
        took, failed = [], 0
        for n in range(shifts):
            ms, bad = await shift(kube, session, url, ARMS[(n + 1) % 2])
            took.append(ms)
            failed += bad
            await asyncio.sleep(0.05)
        under_load = not loaded.done()
        load = await loaded
        count = 1000 if quick else 5000
        share = await split(kube, session, url, count)
        churning.cancel()
    report(
        "weight_shift",
        {
            "services": services,
            "storedAndAcceptedSeconds": round(stored, 2),
            "shifts": shifts,
            "medianMs": interval(took, median),
            "p95Ms": interval(took, partial(percentile, percent=95)),
            "maxMs": round(max(took), 1),
            "endpointChanges": len(churned),
            "loadRate": round(load.rate),
            "fullRate": round(full.rate),
            "loadP99Ms": round(load.p99, 2),
            "loadedThroughout": under_load,
            "failed": failed + load.failed,
            "stableShare": share,
        },
        bars(took, failed + load.failed, share, count),
    )


def bars(took: list[float], failed: int, share: float, count: int) -> list[Bar]:
    error = abs(share - SPLIT)
    allowed = 4 * math.sqrt(SPLIT * (1 - SPLIT) / count)  # four standard errors
    return [
        at_most("API write to traffic, p95 ms", interval(took, partial(percentile, percent=95)), BAR_MS),
        Bar("failed requests", failed, 0, failed == 0),
        Bar("distance from a 70/30 split afterwards", round(error, 4), round(allowed, 4), error <= allowed),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
