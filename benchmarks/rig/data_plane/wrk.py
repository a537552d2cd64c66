"""Load from wrk, a generator in C: throughput and latency at full speed or at a given rate."""

import asyncio
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from rig.data_plane.proxies import LOAD_CORE
from rig.harness import processor_time

CONNECTIONS = 64

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
class Load:
    """The result of one run: answers per second, failures, and latencies in ms."""

    rate: float
    failed: int
    p50: float
    p99: float
    user_micros: float = 0.0
    """Processor time of the proxy's own code, in microseconds for each answer; 0 where it was not read."""
    kernel_micros: float = 0.0


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
    pid: int | None = None,
) -> Load:
    """Run wrk; with `rate`, each connection pauses for an exponential time so that they make it together.

    With `body`, requests POST this JSON. With `pid`, that of the proxy, the result has its processor time.
    """
    pause = PAUSE.format(mean_ms=1000 * connections / rate) if rate else ""
    post = POST.format(body=body) if body else ""
    script = folder / "load.lua"
    script.write_text(f"{pause}\n{post}\n{SCRIPT}")
    before = processor_time(pid) if pid else None
    process = await asyncio.create_subprocess_exec(
        "taskset",
        "-c",
        LOAD_CORE,
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        "-s",
        str(script),
        url,
        stdout=asyncio.subprocess.PIPE,
    )
    text = (await process.communicate())[0].decode()
    match = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", text)
    if match is None:
        raise RuntimeError(f"unusable output of wrk: {text}")
    requests, micros, failed, p50, p99 = (int(x) for x in match.groups())
    result = Load(1e6 * requests / micros, failed, p50 / 1000, p99 / 1000)
    if pid is None or before is None or not requests:
        return result
    user, kernel = (
        1e6 * (now - then) / requests for now, then in zip(processor_time(pid), before, strict=True)
    )
    return replace(result, user_micros=user, kernel_micros=kernel)
