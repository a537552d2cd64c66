"""Cost of reading Envoy's counters for 1,000 services of two arms: as pages, load reports, or a metrics sink.

Processor time of one reading: of Envoy's main thread, of its worker, and of the gateway, including its own
metrics page where it writes one. The cost of the same time and requests without readings is subtracted. The
measurement behind docs/decisions/gateway-statistics.md.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig import interrupts
from rig.data_plane import signals
from rig.data_plane.envoy_world import EnvoyWorld, service, world
from rig.data_plane.proxies import free_port
from rig.harness import Bar, report, resident_mib

from serving import clock
from serving.router.envoy.counts.count_table import CountTable
from serving.router.envoy.process.envoy_process import RunningEnvoy
from serving.router.metrics.labels import Labels
from serving.router.plan.service import Endpoint, GatewayService

SERVICES = 1_000
ARMS = ("stable", "canary")
SECONDS = 0.25
"""Seconds between readings, for many readings in a short run; a gateway reads every two to five seconds."""
REQUESTS_PER_SECOND = 100
SHARES = (0, 0.1, 1.0)
"""Shares of the services that have requests."""
BAR_IDLE_MS, BAR_OWN_MS = 5.0, 30.0
"""CPU of Envoy's main thread for a reading without requests (37 before), and of the gateway for a whole page
with requests at a tenth of the services."""

BACKEND = """
import asyncio, sys
async def answer(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok")
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()
async def ask(reader, writer, n):
    writer.write(b"GET /default/s%04d/x HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n" % n)
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    await reader.readexactly(2)
    assert b" 200 " in head, head
async def main(port, gateway, active, rate):
    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=4096)
    print("listening", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if not active:
        await asyncio.Event().wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway)
    for _ in range(8):
        for n in range(active):
            await ask(reader, writer, n)
    print("all have had some", flush=True)
    n = 0
    while True:
        await ask(reader, writer, n % active)
        n += 1
        await asyncio.sleep(1 / rate)
asyncio.run(main(*(int(value) for value in sys.argv[1:])))
"""


def services(port: int) -> list[GatewayService]:
    where = [Endpoint("127.0.0.1", port)]
    return [service(f"s{n:04}", [(arm, 5_000, where) for arm in ARMS]) for n in range(SERVICES)]


def labels() -> dict[str, Labels]:
    return {
        f"default/s{n:04}-{arm}/8080": Labels("default", f"s{n:04}", arm, f"s{n:04}-{arm}-0a1b2c3d")
        for n in range(SERVICES)
        for arm in ARMS
    }


@contextlib.contextmanager
def traffic(port: int, gateway: int, active: int) -> Iterator[Any]:
    """A separate process that answers, and on request sends requests to the services in turn."""
    process = subprocess.Popen(
        [sys.executable, "-c", BACKEND, *map(str, (port, gateway, active, REQUESTS_PER_SECOND))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Used:
    """Processor seconds."""

    main: float
    worker: float
    own: float

    def __sub__(self, other: "Used") -> "Used":
        """Return the difference."""
        return Used(self.main - other.main, self.worker - other.worker, self.own - other.own)


def used(envoy: int) -> Used:
    threads = {}
    for task in Path(f"/proc/{envoy}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        threads[task.name if name == "envoy" else name] = (int(fields[11]) + int(fields[12])) / os.sysconf(
            "SC_CLK_TCK"
        )
    return Used(threads[str(envoy)], threads.get("wrk:worker_0", 0.0), time.process_time())


async def measure(way: str, active: int, readings: int, quiet: Used | None) -> tuple[dict[str, Any], Used]:
    """Return the CPU time of readings, and the CPU time without them.

    Args:
        way: of `signals.WAYS`.
        active: services that have requests.
        readings: how many.
        quiet: the known use without readings; a sink cannot be paused.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-signals-") as root:
        socket, begin = Path(root) / "signals.sock", asyncio.Event()
        async with (
            signals.receiving(way, socket, SECONDS, begin) as readings_of,
            world(signals.changed(way, socket, SECONDS)) as (gateway, envoy),
        ):
            port = free_port()
            await gateway.serve(services(port))
            with traffic(port, gateway.port, active) as process:
                process.stdin.write("go\n")
                process.stdin.flush()
                if active:
                    await asyncio.to_thread(process.stdout.readline)
                if quiet is None:
                    before = used(envoy.pid)
                    await asyncio.sleep(readings * SECONDS)
                    quiet = used(envoy.pid) - before
                begin.set()
                await asyncio.sleep(2 * SECONDS)
                before, number = used(envoy.pid), readings_of.number
                if way in signals.SENT:
                    await asyncio.sleep(readings * SECONDS)
                else:
                    await read_pages(way, gateway, envoy, readings_of, readings)
                spent, number = used(envoy.pid) - before - quiet, readings_of.number - number
                return {
                    "readings": number,
                    "envoyMainMs": each(spent.main, number),
                    "envoyWorkerMs": each(spent.worker, number),
                    "ownMs": each(spent.own, number),
                    "clustersCounted": len(readings_of.counts or {}),
                    "residentMiB": resident_mib(envoy.pid),
                }, quiet


async def read_pages(
    way: str, gateway: EnvoyWorld, envoy: RunningEnvoy, received: signals.SignalReadings, readings: int
) -> None:
    known, table = labels(), CountTable(envoy.pid)
    for _ in range(readings):
        began = clock.monotonic()
        await signals.ask(way, gateway, table, received, known)
        await asyncio.sleep(max(0.0, SECONDS - (clock.monotonic() - began)))


def each(seconds: float, readings: int) -> float:
    return round(1000 * seconds / max(readings, 1), 2)


async def main(*, quick: bool) -> None:
    readings = 24 if quick else 120
    results: dict[str, dict[str, Any]] = {way: {} for way in signals.WAYS}
    for share in SHARES:
        quiet: Used | None = None
        for way in signals.WAYS:
            used, without = await measure(
                way, round(share * SERVICES), readings, quiet if way == signals.SINK else None
            )
            quiet = without if way == signals.PAGE else quiet
            results[way][f"{share:.0%}"] = used
            print(f"{way:24} {share:4.0%} {used}", file=sys.stderr, flush=True)
    ours = results[signals.PAGE]
    idle, own = ours["0%"]["envoyMainMs"], ours["10%"]["ownMs"]
    bars = [
        Bar(
            "a reading of 1,000 idle services, ms of Envoy's main thread",
            idle,
            BAR_IDLE_MS,
            idle <= BAR_IDLE_MS,
        ),
        Bar(
            "a page of 1,000 services, 100 of them busy, ms of the gateway",
            own,
            BAR_OWN_MS,
            own <= BAR_OWN_MS,
        ),
    ]
    report("gateway_signals", {"services": SERVICES, "ways": results}, bars)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four minutes")
    interrupts.run(main(quick=parser.parse_args().quick))
