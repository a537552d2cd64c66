"""A burst of 1,000 simultaneous requests at a predictor at zero: lost requests and waiting times.

The whole product runs (`slipway up`). The predictor is the shipped scikit-learn runtime with `minReplicas:
0`, and each run waits until its last replica is gone. Every request has its own connection and is never
retried. Each burst is repeated directly afterwards, with the replica up: that is the cost of the client, a
Python program on the same machine, and of the replica. Then the burst at zero is repeated with API,
controllers and node agent killed during the wake. A request is lost if its answer is not a 200 with the right
digit.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import orjson
from rig import cold_models, interrupts
from rig.cold_models import Trained
from rig.harness import Bar, interval, median, percentile, report
from rig.objects import manifest

from serving import clock, errors
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.system import processes

BURST = 1_000
NAME = "burst"
WAIT_SECONDS = 120.0
POLL_SECONDS = 0.05
KILLED = ("api", "controllers", "node")
KILL_AFTER_SECONDS = 0.02
"""From the beginning of the burst: the wake has begun, and no replica is up."""


@dataclass
class Bursts:
    """Milliseconds, one entry per run; `lost` has the errors."""

    first: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def add(self, took: Sequence[float]) -> None:
        self.first.append(min(took))
        self.p50.append(median(took))
        self.p99.append(percentile(took, 99))
        self.last.append(max(took))

    def results(self) -> Object:
        p95 = partial(percentile, percent=95)
        return {
            "firstMs": interval(self.first),
            "firstP95Ms": interval(self.first, p95),
            "p50Ms": interval(self.p50),
            "p99Ms": interval(self.p99),
            "lastMs": interval(self.last),
            "lost": len(self.lost),
        }


async def until(kube: Kube, kind: kinds.Kind, name: str, reason: str) -> Object:
    """Wait until this object is Ready for this reason."""
    deadline = clock.monotonic() + WAIT_SECONDS
    reported = None
    while True:
        obj: Object = {}
        with contextlib.suppress(errors.Unavailable):  # the API may have been killed
            obj = await kube.get(kind, "default", name)
        reported = (obj.get("status") or {}).get("conditions")
        ready = conditions.find(reported, "Ready") or {}
        if (ready.get("status"), ready.get("reason")) == ("True", reason):
            return obj
        if clock.monotonic() > deadline:
            raise RuntimeError(f"{kind.kind} {name} is not {reason}: {reported}")
        await asyncio.sleep(POLL_SECONDS)


async def until_gone(kube: Kube) -> None:
    """Wait until the last replica has ended and takes no more CPU time."""
    await until(kube, kinds.INFERENCE, NAME, "ScaledToZero")
    while (await kube.list(kinds.POD, "default")).items:  # noqa: ASYNC110 another process says so
        await asyncio.sleep(POLL_SECONDS)


async def kill(stack: Stack) -> None:
    """SIGKILL the components of a wake during the wake; `up` restarts them."""
    await asyncio.sleep(KILL_AFTER_SECONDS)
    for name in KILLED:
        if identity := processes.read_identity(stack.where.identity(name)):
            processes.send_signal(identity[0], signal.SIGKILL)


async def burst(session: aiohttp.ClientSession, url: str, model: Trained, into: Bursts) -> None:
    """Send all requests at once; times count from the beginning of the burst."""
    body = orjson.dumps(model.request)
    began = clock.monotonic()

    async def one() -> float:
        try:
            async with session.post(url, data=body, headers={"content-type": "application/json"}) as answer:
                content = await answer.read()
                if answer.status != 200 or model.answer(orjson.loads(content)) != model.expected:
                    into.lost.append(f"{answer.status}: {content[:200]!r}")
        except aiohttp.ClientError as error:
            into.lost.append(repr(error))
        return 1000 * (clock.monotonic() - began)

    into.add(await asyncio.gather(*(one() for _ in range(BURST))))


@contextlib.asynccontextmanager
async def deployed(model: Trained, folder: Path) -> AsyncIterator[tuple[Stack, Kube]]:
    """Yield the running product with the model."""
    stack = Stack(DataDir(folder / "data"))
    try:
        await stack.start()
        async with await connect(stack.where.kubeconfig, component="bench") as kube:
            source = {"modelName": NAME, "source": {"path": str(model.directory)}}
            await kube.create(kinds.MODEL_VERSION, manifest(kinds.MODEL_VERSION, NAME, source))
            predictor = {
                "name": "only",
                "modelVersion": NAME,
                "autoScale": {
                    "minReplicas": 0,
                    "maxReplicas": 1,
                    "behavior": {"scaleToZero": {"idleSeconds": 1}},
                },
            }
            spec = {"framework": model.framework, "predictors": [predictor]}
            await kube.create(kinds.INFERENCE, manifest(kinds.INFERENCE, NAME, spec))
            yield stack, kube
    finally:
        await stack.end()


async def measure(model: Trained, runs: int, folder: Path) -> tuple[Bursts, Bursts, Bursts]:
    """Return the bursts at zero, with the replica up, and with the components killed."""
    at_zero, up, killed = Bursts(), Bursts(), Bursts()
    async with deployed(model, folder) as (stack, kube):
        gateway = orjson.loads(stack.where.ports.read_bytes())["gateway"]
        url = f"http://127.0.0.1:{gateway}/default/{NAME}/v2/models/{NAME}/infer"
        for run in range(runs):
            await until_gone(kube)
            async with _session() as session:
                await burst(session, url, model, at_zero)
                await burst(session, url, model, up)
            await until_gone(kube)
            async with _session() as session:
                await asyncio.gather(burst(session, url, model, killed), kill(stack))
            parts = ", ".join(
                f"{label} p50 {bursts.p50[-1]:.0f} p99 {bursts.p99[-1]:.0f} ms (lost {len(bursts.lost)})"
                for label, bursts in (("at zero", at_zero), ("up", up), ("killed", killed))
            )
            print(f"{run + 1}/{runs}  {parts}", file=sys.stderr, flush=True)
    return at_zero, up, killed


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=WAIT_SECONDS)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


async def main(*, quick: bool) -> None:
    runs = 3 if quick else 20
    with cold_models.folder() as folder:
        at_zero, up, killed = await measure(cold_models.sklearn(folder / "model"), runs, folder)
    for error in [*at_zero.lost, *up.lost, *killed.lost][:5]:
        print(error, file=sys.stderr)
    report(
        "burst_at_zero",
        {
            "runs": runs,
            "requests": BURST,
            "atZero": at_zero.results(),
            "replicaUp": up.results(),
            "killedMeanwhile": killed.results(),
        },
        [
            Bar(f"requests lost of {runs} bursts of {BURST} {label}", len(bursts.lost), 0, not bursts.lost)
            for label, bursts in (("at zero", at_zero), (f"with {', '.join(KILLED)} killed", killed))
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three bursts")
    interrupts.run(main(quick=parser.parse_args().quick))
