"""The first request at zero replicas, from its sending to the last byte of its answer, in four arms.

    A0  the image is in a registry behind a link of fixed speed, gzip'd as KubeDL's builder leaves it;
        store and page cache are empty; a new process
    A1  the image is in the store; model and environment files are not in the page cache; a new process
    A2  an ordinary cache: image in the store, everything in the page cache; a new process
    A3  as A2, and the replica is forked from a zygote, as deployed by default

The whole product runs (`slipway up`), each arm is an Inference with `minReplicas: 0`, and arms take turns.
Every answer is compared with the model's own, and the phases with the total. A living zygote keeps the pages
of its libraries in the cache, which flatters A0 and A1.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from rig import cold_models, interrupts, pages, registry
from rig.cold_models import Trained
from rig.harness import RESAMPLES, SEED, Bar, Interval, interval, median, percentile, report
from rig.objects import POLL_SECONDS, READY_SECONDS, is_ready, manifest, until

from serving import clock
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.names import INFERENCE_LABEL, SERVED_VERSION_HEADER

BAR = 0.85
LINK = 1e9
"""Bits per second between registry and machine."""
SUMS_WITHIN = 0.02
"""Phases add up to the wake's total within this share."""
DISCARDED = 2


@dataclass(frozen=True)
class Arm:
    name: str
    zygote: bool = False
    warm_pages: bool = True
    remote: bool = False


ARMS = (
    Arm("A0", warm_pages=False, remote=True),
    Arm("A1", warm_pages=False),
    Arm("A2"),
    Arm("A3", zygote=True),
)


@dataclass
class ArmSamples:
    """Samples of one arm: the client's milliseconds, and the phases of the wake's trace."""

    total: list[float] = field(default_factory=list)
    phases: list[Mapping[str, float]] = field(default_factory=list)
    unattributed: list[float] = field(default_factory=list)


class ColdStarts:
    """One product with the arms of one model deployed."""

    def __init__(self, kube: Kube, data: DataDir, session: aiohttp.ClientSession, model: Trained) -> None:
        self._kube, self._data, self._session, self._model = kube, data, session, model
        gateway = orjson.loads(data.ports.read_bytes())["gateway"]
        self._base = f"http://127.0.0.1:{gateway}/default"
        self._environment = pages.files(Path(sys.prefix, "lib"))
        self._digest = ""

    async def deploy(self, port: int, slow: int) -> None:
        local, remote = f"{self._model.framework}-local", f"{self._model.framework}-remote"
        await self._kube.create(kinds.MODEL_VERSION, _version(local, {"path": str(self._model.directory)}))
        built = await until(self._kube, kinds.MODEL_VERSION, local, is_ready)
        await _push(self._data, built["status"]["digest"], f"127.0.0.1:{port}/plain/{local}:v1")
        await asyncio.to_thread(registry.compress, port, f"plain/{local}:v1", f"gzip/{local}:v1")
        await self._kube.create(
            kinds.MODEL_VERSION, _version(remote, {"image": f"127.0.0.1:{slow}/gzip/{local}:v1"})
        )
        self._digest = (await until(self._kube, kinds.MODEL_VERSION, remote, is_ready))["status"]["digest"]
        for arm in ARMS:
            version = remote if arm.remote else local
            await self._kube.create(kinds.INFERENCE, _inference(self._name(arm), self._model, version, arm))
        for arm in ARMS:
            await until(self._kube, kinds.INFERENCE, self._name(arm), is_ready)

    async def sample(self, arm: Arm, into: ArmSamples) -> None:
        """Wait for zero, empty the caches as the arm requires, and send one request."""
        name = self._name(arm)
        await self._until_zero(name)
        before = await self._wake(name)
        if arm.remote:
            await self._forget()
        if not arm.warm_pages:
            own = pages.files(self._data.models / "trees")
            await asyncio.to_thread(pages.drop, [*own, *self._environment])
        else:
            await asyncio.to_thread(_read_all, pages.files(self._data.models / "trees"))
        url = f"{self._base}/{name}/v2/models/{name}/infer"
        began = clock.monotonic()
        async with self._session.post(url, json=self._model.request) as answer:
            body = await answer.read()
            took = 1000 * (clock.monotonic() - began)
            _check(self._model, answer.status, body, answer.headers.get(SERVED_VERSION_HEADER, ""))
        wake = await self._until_woken(name, before)
        phases = {phase["name"]: phase["milliseconds"] for phase in wake["phases"]}
        into.total.append(took)
        into.phases.append(phases | {"answer": took - wake["total"]})
        into.unattributed.append(1 - sum(phases.values()) / wake["total"])

    async def _forget(self) -> None:
        """Remove the remote image and its version's pin from the store, as on a fresh machine.

        A replica's pin may outlive the replica for a moment.
        """
        deadline = clock.monotonic() + READY_SECONDS
        while not await asyncio.to_thread(self._forgotten):
            if clock.monotonic() > deadline:
                raise RuntimeError(f"{self._digest} is still in use")
            await asyncio.sleep(POLL_SECONDS)

    def _forgotten(self) -> bool:
        store = ModelStore(self._data.models)
        for owner in store.pins(self._digest):
            if owner.startswith("modelversion-"):
                store.unpin(self._digest, owner)
        return not store.has(self._digest) or store.remove(self._digest)

    async def _until_zero(self, name: str) -> None:
        deadline = clock.monotonic() + READY_SECONDS
        while (await self._kube.list(kinds.POD, "default", labels=f"{INFERENCE_LABEL}={name}")).items:
            if clock.monotonic() > deadline:
                raise RuntimeError(f"{name} does not go to zero")
            await asyncio.sleep(POLL_SECONDS)

    async def _until_woken(self, name: str, before: Object) -> Object:
        deadline = clock.monotonic() + READY_SECONDS
        while (wake := await self._wake(name)) == before:
            if clock.monotonic() > deadline:
                raise RuntimeError(f"no trace of the wake of {name}")
            await asyncio.sleep(POLL_SECONDS)
        return wake

    async def _wake(self, name: str) -> Object:
        autoscaler = await self._kube.get(kinds.AUTOSCALER, "default", f"{name}-only")
        demand = (autoscaler.get("status") or {}).get("demand") or []
        return next((entry["lastWake"] for entry in demand if entry.get("lastWake")), {})

    def _name(self, arm: Arm) -> str:
        return f"{self._model.framework}-{arm.name.lower()}"


def _version(name: str, source: Object) -> Object:
    return manifest(kinds.MODEL_VERSION, name, {"modelName": name, "source": source})


def _inference(name: str, model: Trained, version: str, arm: Arm) -> Object:
    annotations = {} if arm.zygote else {names.ZYGOTE_ANNOTATION: "disabled"}
    predictor = {
        "name": "only",
        "modelVersion": version,
        "template": {"metadata": {"annotations": annotations}},
        "autoScale": {"minReplicas": 0, "maxReplicas": 1, "behavior": {"scaleToZero": {"idleSeconds": 1}}},
    }
    spec = {"framework": model.framework, "predictors": [predictor]}
    return manifest(kinds.INFERENCE, name, spec)


def _check(model: Trained, status: int, body: bytes, version: str) -> None:
    if status != 200 or model.answer(orjson.loads(body)) != model.expected:
        raise RuntimeError(f"{version} answered {status}: {body[:500]!r}")


def _read_all(paths: Sequence[Path]) -> None:
    for path in paths:
        path.read_bytes()


async def _push(data: DataDir, digest: str, reference: str) -> None:
    from serving.images.registry import Credentials, Reference, Registry, push  # noqa: PLC0415

    async with Registry(Credentials.none()) as client:
        await push(client, ModelStore(data.models), digest, Reference.parse(reference))


def reduction(arm: Sequence[float], base: Sequence[float]) -> Interval:
    """1 - median(arm) / median(base), with both resampled."""
    draw = random.Random(SEED)
    ratios = sorted(
        1 - median(draw.choices(arm, k=len(arm))) / median(draw.choices(base, k=len(base)))
        for _ in range(RESAMPLES)
    )
    low, high = ratios[int(RESAMPLES * 0.025)], ratios[int(RESAMPLES * 0.975) - 1]
    return Interval(round(1 - median(arm) / median(base), 4), round(low, 4), round(high, 4), len(arm))


async def measure(model: Trained, runs: int, folder: Path) -> tuple[dict[str, ArmSamples], dict[str, float]]:
    samples = {arm.name: ArmSamples() for arm in ARMS}
    stack = Stack(DataDir(folder / "data"))
    with registry.running(folder, LINK) as (port, slow):
        try:
            await stack.start()
            async with (
                await connect(stack.where.kubeconfig, component="bench") as kube,
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
            ):
                world = ColdStarts(kube, stack.where, session, model)
                await world.deploy(port, slow)
                for run in range(runs + DISCARDED):
                    for arm in [*ARMS[run % 4 :], *ARMS[: run % 4]]:
                        into = samples[arm.name] if run >= DISCARDED else ArmSamples()
                        await world.sample(arm, into)
                    line = "  ".join(f"{name} {s.total[-1]:7.1f}" for name, s in samples.items() if s.total)
                    print(
                        f"{model.framework} {run + 1}/{runs + DISCARDED}  {line}", file=sys.stderr, flush=True
                    )
                cost = await asyncio.to_thread(cold_models.cost, stack.where)
        finally:
            await stack.end()
    return samples, cost


def results(samples: Mapping[str, ArmSamples]) -> dict[str, Any]:
    p95 = partial(percentile, percent=95)
    arms = {
        name: {
            "medianMs": interval(s.total, median),
            "p95Ms": interval(s.total, p95),
            "phasesMs": {key: round(median([p.get(key, 0.0) for p in s.phases]), 1) for key in s.phases[0]},
            "unattributedShare": round(max(map(abs, s.unattributed)), 4),
        }
        for name, s in samples.items()
    }
    return arms | {
        "reductionA3AgainstA2": reduction(samples["A3"].total, samples["A2"].total),
        "reductionA3AgainstA0": reduction(samples["A3"].total, samples["A0"].total),
        "reductionA2AgainstA0": reduction(samples["A2"].total, samples["A0"].total),
    }


def bars(framework: str, arms: Mapping[str, ArmSamples]) -> list[Bar]:
    cut = reduction(arms["A3"].total, arms["A2"].total)
    loose = max(abs(share) for samples in arms.values() for share in samples.unattributed)
    return [
        Bar(f"{framework}: first request at zero, A3 against A2", cut.low, BAR, cut.low >= BAR),
        Bar(
            f"{framework}: share of a wake that no phase has",
            round(loose, 4),
            SUMS_WITHIN,
            loose <= SUMS_WITHIN,
        ),
    ]


async def main(*, quick: bool, framework: str) -> None:
    if absent := registry.missing():
        sys.exit(f"not installed: apt-get install {' '.join(absent)}")
    runs = 3 if quick else 20
    summary: dict[str, Any] = {"runs": runs, "linkBitsPerSecond": LINK}
    held: list[Bar] = []
    for train in cold_models.available(quick=quick):
        if framework not in ("", train.__name__):
            continue
        with cold_models.folder() as folder:
            model = train(folder / "model")
            samples, cost = await measure(model, runs, folder)
        summary[model.framework] = results(samples) | {"modelBytes": model.bytes, "cost": cost}
        held += bars(model.framework, samples)
    report("cold_start", summary, held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three runs of each arm, scikit-learn alone")
    parser.add_argument("--framework", default="", choices=["", "sklearn", "torch"], help="this one alone")
    chosen = parser.parse_args()
    interrupts.run(main(quick=chosen.quick, framework=chosen.framework))
