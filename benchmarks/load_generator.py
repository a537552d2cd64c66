"""Throughput of the tuner's load generator, and its latencies against a generator in C, in one run.

The target is nginx with a fixed answer, on one core; one process of locust and wrk send load in turns from
another core. The bars: requests per second of the generator's own CPU time, because a shared machine gives it
less than a core; and the difference of the median latencies with one connection, where only the client can
differ.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from rig import interrupts
from rig.data_plane import proxies, wrk
from rig.harness import at_least, at_most, interval, median, process_seconds, report

from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan, LoadRequest, Mode
from tuner.load.windows.samples import Samples
from tuner.settings import LoadSettings

BAR_RATE, BAR_MS = 2_000, 0.5
"""Requests per second of CPU: "several thousand" on a core of this decade; and milliseconds."""
USERS = 64
BODY = b'{"inputs":[{"name":"input","datatype":"FP64","shape":[1,64],"data":[%b]}]}' % b",".join(
    [b"0.5"] * 64
)
ASKED = LoadRequest("POST", "/v2/models/digits/infer", {"content-type": "application/json"}, BODY)
ANSWER = (
    '{\\"outputs\\":[{\\"name\\":\\"predict\\",\\"shape\\":[1],\\"datatype\\":\\"INT64\\",\\"data\\":[7]}]}'
)
SETTINGS = LoadSettings()


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@contextlib.asynccontextmanager
async def started(url: str, mode: Mode) -> AsyncIterator[tuple[Generator, int]]:
    before = children()
    async with Generator.start(
        url, LoadPlan(mode, (ASKED,)), SETTINGS, [int(proxies.LOAD_CORE)], user_ids=None
    ) as generator:
        (pid,) = children() - before
        yield generator, pid


async def driven(generator: Generator, pid: int, level: float, seconds: float) -> tuple[Samples, float]:
    """Return a window and the requests per second of CPU."""
    used = process_seconds(pid)
    seen = await generator.window(level, seconds)
    return seen, len(seen.ok) / (process_seconds(pid) - used)


async def main(*, quick: bool) -> None:
    if wrk.missing() or not proxies.available("nginx"):
        sys.exit("wrk and nginx are needed: apt-get install wrk nginx-light")
    turns, seconds = (3, 1.0) if quick else (15, 2.0)
    rates, efficiencies, apart, one_wrk, one_ours, wrk_rates = [], [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="slipway-load-") as name, contextlib.ExitStack() as stack:
        folder, port = Path(name), proxies.free_port()
        server = proxies.BACKEND.format(port=port, body=ANSWER)
        stack.enter_context(proxies.nginx(folder, proxies.PROXY_CORE, port, "target", server))
        url = f"http://127.0.0.1:{port}"
        async with started(url, "closed") as (generator, pid):
            await generator.window(USERS, 0.5)
            for _ in range(turns):
                seen, efficiency = await driven(generator, pid, USERS, seconds)
                rates.append(len(seen.ok) / seconds)
                efficiencies.append(efficiency)
                ours = [await generator.window(1, seconds) for _ in range(2)]
                await generator.window(0, 0.05)  # wrk has the core to itself
                theirs = [await wrk.load(folder, url, seconds, connections=1) for _ in range(2)]
                wrk_rates.append((await wrk.load(folder, url, seconds)).rate)
                one_ours.append(median([1000 * float(np.median(run.latency)) for run in ours]))
                one_wrk.append(median([run.p50 for run in theirs]))
                apart.append(one_ours[-1] - one_wrk[-1])
                if not seen.ok.all():
                    raise RuntimeError(f"requests failed: {seen.errors}")
        schedule = await open_loop(url, median(rates) / 2, turns * seconds)
    results = {
        "closed": {
            "users": USERS,
            "requestsPerSecond": interval(rates),
            "perCpuSecond": interval(efficiencies),
        },
        "wrk": {"connections": USERS, "requestsPerSecond": interval(wrk_rates)},
        "oneUserP50Ms": {"ours": interval(one_ours), "wrk": interval(one_wrk), "apart": interval(apart)},
        "open": schedule,
    }
    bars = [
        at_least("requests per second of the generator's CPU, closed loop", interval(efficiencies), BAR_RATE),
        at_most("median latency with one user less wrk's, ms", interval(apart), BAR_MS),
    ]
    report("load_generator", results, bars)


async def open_loop(url: str, rate: float, seconds: float) -> dict[str, float]:
    """Return how well the schedule is kept at half of the highest rate."""
    async with started(url, "open") as (generator, pid):
        await generator.window(rate, 0.5)
        seen, efficiency = await driven(generator, pid, rate, seconds)
    return {
        "asked": round(rate),
        "requestsPerSecond": round(len(seen.ok) / seconds),
        "perCpuSecond": round(efficiency),
        "late": round(seen.late, 4),
        "p50Ms": round(1000 * float(np.median(seen.latency)), 3),
        "p99Ms": round(1000 * float(np.percentile(seen.latency, 99)), 3),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    interrupts.run(main(quick=parser.parse_args().quick))
