"""Load from wrk, a generator in C: throughput and latency at full speed or at a given rate, and the
throughput of proxies that take short turns.
"""

import asyncio
import contextlib
import math
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.data_plane.proxies import LOAD_CORE
from rig.harness import process_seconds, processor_time
from serving import clock

CONNECTIONS = 64
TURN_SECONDS = 0.1
"""A turn of `alternate`: the speed of a shared machine changes within seconds, and hardly within a tenth."""

DRAIN_SECONDS = 0.01
"""The 64 requests in flight at the end of a turn are answered in some 3 ms."""

POST = 'wrk.method = "POST"; wrk.headers["Content-Type"] = "application/json"; wrk.body = [==[{body}]==]'
PAUSE = "function delay() return -{mean_ms} * math.log(1 - math.random()) end"
SCRIPT = """
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    e.status + e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True)
class WrkRun:
    """The result of one run: answers per second, failures, and latencies in ms."""

    rate: float
    failed: int
    p50: float
    p99: float


@dataclass(frozen=True)
class Throughput:
    """Answers per second and failures of a proxy over its turns, and its processor time for each answer."""

    rate: float
    failed: int
    user_micros: float
    kernel_micros: float


class _Generator:
    """A wrk that runs only in its turns: in between it is stopped by SIGSTOP, with answers to be read."""

    def __init__(self, process: asyncio.subprocess.Process, proxy: int) -> None:
        """`proxy` is the process that it loads."""
        self._process = process
        self._proxy = proxy
        self._seconds = 0.0

    async def run(self, seconds: float) -> None:
        """Run for a turn, then let the proxy answer the requests in flight: that time is of the turn, too."""
        self._process.send_signal(signal.SIGCONT)
        began = clock.monotonic()
        await asyncio.sleep(seconds)
        self._process.send_signal(signal.SIGSTOP)
        self._seconds += clock.monotonic() - began
        used = process_seconds(self._proxy)
        await asyncio.sleep(DRAIN_SECONDS)
        self._seconds += process_seconds(self._proxy) - used

    async def end(self) -> tuple[int, int, float]:
        """Run to the end; return the numbers of answers and failures, and the seconds of all turns."""
        self._process.send_signal(signal.SIGCONT)
        began = clock.monotonic()
        answers, _, failed, _, _ = await _result(self._process)
        return answers, failed, self._seconds + clock.monotonic() - began

    def kill(self) -> None:
        """End it at once, if it has not ended: one that is stopped does not end by SIGTERM."""
        if self._process.returncode is None:
            self._process.kill()


def missing() -> bool:
    return shutil.which("wrk") is None


async def load(
    folder: Path,
    url: str,
    seconds: float,
    rate: float = 0.0,
    *,
    body: str = "",
    connections: int = CONNECTIONS,
) -> WrkRun:
    """Run wrk; with `rate`, each connection pauses for an exponential time so that they make it together.

    With `body`, requests POST this JSON.
    """
    pause = PAUSE.format(mean_ms=1000 * connections / rate) if rate else ""
    post = POST.format(body=body) if body else ""
    process = await _start(folder, f"{pause}\n{post}", url, max(1, round(seconds)), connections)
    requests, micros, failed, p50, p99 = await _result(process)
    return WrkRun(1e6 * requests / micros, failed, p50 / 1000, p99 / 1000)


async def alternate(
    folder: Path, urls: Mapping[str, str], pids: Mapping[str, int], seconds: float
) -> dict[str, Throughput]:
    """Load proxies at full speed in turns of `TURN_SECONDS`, in the order ABBA.

    Args:
        folder: for wrk's script.
        urls: of the proxies, by name.
        pids: their processes, by name.
        seconds: of load for each proxy.
    """
    turns = math.ceil(seconds / TURN_SECONDS)
    duration = math.ceil(turns * (TURN_SECONDS + DRAIN_SECONDS) * len(urls)) + 1
    ends_at = clock.monotonic() + duration
    before = {name: processor_time(pids[name]) for name in urls}
    results: dict[str, Throughput] = {}
    with contextlib.ExitStack() as stack:
        generators = {}
        for name, url in urls.items():
            generators[name] = _Generator(await _start(folder, "", url, duration, CONNECTIONS), pids[name])
            stack.callback(generators[name].kill)
            await generators[name].run(TURN_SECONDS)
        order = list(generators.values())
        for _ in range(turns - 1):
            for generator in order:
                await generator.run(TURN_SECONDS)
            order.reverse()
        await asyncio.sleep(max(0.0, ends_at - clock.monotonic()))
        for name, generator in generators.items():
            answers, failed, ran = await generator.end()
            user, kernel = (
                1e6 * (now - then) / answers
                for now, then in zip(processor_time(pids[name]), before[name], strict=True)
            )
            results[name] = Throughput(answers / ran, failed, user, kernel)
    return results


async def _start(
    folder: Path, script: str, url: str, seconds: int, connections: int
) -> asyncio.subprocess.Process:
    path = folder / "load.lua"
    path.write_text(f"{script}\n{SCRIPT}")
    return await asyncio.create_subprocess_exec(
        "taskset",
        "-c",
        LOAD_CORE,
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "-s",
        str(path),
        url,
        stdout=asyncio.subprocess.PIPE,
    )


async def _result(process: asyncio.subprocess.Process) -> tuple[int, int, int, int, int]:
    """Return answers, microseconds, failures, and the 50th and 99th percentile of latency in microseconds."""
    text = (await process.communicate())[0].decode()
    match = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", text)
    if match is None:
        raise RuntimeError(f"unusable output of wrk: {text}")
    answers, micros, failed, p50, p99 = (int(x) for x in match.groups())
    return answers, micros, failed, p50, p99
