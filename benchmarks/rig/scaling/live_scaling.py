"""The product on this machine with replicas of known capacity, load recorded on both sides, and a scaler."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation, Replicas
from autoscaler.signals.board import Board
from autoscaler.signals.exposition import ScaleTargetName
from autoscaler.signals.pages import Pages
from autoscaler.simulate.policy import Policy
from autoscaler.starts import is_ready as takes_requests
from rig.objects import is_ready, manifest, until
from serving import clock, errors
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.kube import Informer, Kube, connect
from serving.objects import Object
from serving.resources import kinds, leases
from serving.resources.names import INFERENCE_LABEL, STANDBY_LABEL
from serving.settings import DEFAULTS

HERE = Path(__file__).parent
POLL_SECONDS = 0.2
ZERO_SECONDS = 180.0
"""Seconds until a predictor without requests has no replicas."""
LEAD_SECONDS = 3.0
"""In which the load's process gets ready."""
ARM = "only"
COLUMN_SECONDS = 10
"""Of a timeline."""


@dataclass(frozen=True)
class SlotReplica:
    """What a replica can do."""

    slots: int
    service: float
    """Seconds in a slot."""
    load: float
    """Seconds that a replica loads its model before it listens."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.slots / self.service


@dataclass(frozen=True)
class LoadAnswer:
    """One request."""

    at: float
    """Seconds from the start of the run: when it was to be sent."""
    latency: float
    """Seconds from then to the end of the answer."""
    status: int


@dataclass
class PodLife:
    """One replica, in seconds of the machine's monotonic clock."""

    created: float
    ready: float | None = None
    leaving: float | None = None
    """Since when it is to end."""
    gone: float | None = None


@dataclass
class Lives:
    """The replicas of one Inference, as a watch shows them."""

    by_uid: dict[str, PodLife] = field(default_factory=dict)

    def changed(self, before: Object | None, after: Object | None) -> None:
        """Take a change of a Pod."""
        now, pod = clock.monotonic(), after or before or {}
        if STANDBY_LABEL in (pod["metadata"].get("labels") or {}):
            return
        life = self.by_uid.setdefault(pod["metadata"]["uid"], PodLife(now))
        if after is None:
            life.gone = now
            life.leaving = life.leaving or now
            return
        if after["metadata"].get("deletionTimestamp") and life.leaving is None:
            life.leaving = now
        if life.ready is None and takes_requests(after):
            life.ready = now

    def seconds(self, start: float, end: float) -> float:
        """Return replica-seconds within a span, from creation to removal."""
        return sum(_within(start, end, life.created, life.gone) for life in self.by_uid.values())

    def leaving_seconds(self, start: float, end: float) -> float:
        """Return the replica-seconds of terminating replicas within a span."""
        return sum(
            _within(start, end, life.leaving, life.gone)
            for life in self.by_uid.values()
            if life.leaving is not None
        )

    def ready(self, moment: float) -> int:
        """Return the replicas that took requests at a moment."""
        return sum(
            life.ready is not None
            and life.ready <= moment
            and (life.leaving is None or moment < life.leaving)
            for life in self.by_uid.values()
        )

    def alive(self, moment: float) -> int:
        return sum(
            life.created <= moment and (life.gone is None or moment < life.gone)
            for life in self.by_uid.values()
        )

    def starts(self) -> list[float]:
        """Return the seconds that starts took."""
        return [life.ready - life.created for life in self.by_uid.values() if life.ready is not None]


def timeline(
    what: str, moments: list[float], lives: Lives, start: float, seconds: float, changes: list[Object]
) -> list[str]:
    """Return the changes of the count, and for each `COLUMN_SECONDS` the rate, and ready over existing
    replicas.

    Args:
        what: the unit of the rate.
        moments: seconds from the start at which requests were to be sent.
        lives: the replicas.
        start: seconds of the machine's monotonic clock.
        seconds: of the run.
        changes: `status.decisions` of the Autoscaler.
    """
    columns = range(0, round(seconds), COLUMN_SECONDS)
    rates = [sum(at <= moment < at + COLUMN_SECONDS for moment in moments) / COLUMN_SECONDS for at in columns]
    counts = [f"{lives.ready(start + at)}/{lives.alive(start + at)}" for at in columns]
    return [
        *(
            f"  {change['time']} {change['fromReplicas']} to {change['toReplicas']}: {change['message']}"
            for change in reversed(changes)
        ),
        f"  {what:8} " + " ".join(f"{rate:5.1f}" for rate in rates),
        "  replicas " + " ".join(f"{count:>5}" for count in counts),
    ]


def _within(start: float, end: float, first: float, last: float | None) -> float:
    return max(min(end, end if last is None else last) - max(start, first), 0.0)


@dataclass
class Played:
    """One run."""

    answers: list[LoadAnswer]
    lives: Lives
    start: float
    """Seconds of the machine's monotonic clock."""
    seconds: float
    unix: float
    """The start, in Unix seconds."""
    changes: list[Object]
    """As `status.decisions` of the Autoscaler at the end."""


class ScalingWorld:
    """One product; each run has an Inference of its own."""

    def __init__(self, kube: Kube, data: DataDir, machine: SlotReplica) -> None:
        self._kube, self._data, self._machine = kube, data, machine
        gateway = orjson.loads(data.ports.read_bytes())["gateway"]
        self._base = f"http://127.0.0.1:{gateway}/default"

    async def deploy(self, name: str, folder: Path, scale: Object) -> None:
        """Have an Inference, proven with one replica."""
        await asyncio.to_thread(_write_model, folder)
        source = {"modelName": name, "source": {"path": str(folder)}}
        await self._kube.create(kinds.MODEL_VERSION, manifest(kinds.MODEL_VERSION, name, source))
        arm = {"name": ARM, "modelVersion": name, "autoScale": scale, **self.template()}
        spec = {"framework": self.framework, "predictors": [arm]}
        await self._kube.create(kinds.INFERENCE, manifest(kinds.INFERENCE, name, spec))
        await until(self._kube, kinds.INFERENCE, name, is_ready)

    framework = "custom"

    def template(self) -> Object:
        """Return the fields of a predictor that starts a replica."""
        command = [
            sys.executable,
            str(HERE / "slot_server.py"),
            "--slots",
            str(self._machine.slots),
            "--service",
            str(self._machine.service),
            "--load",
            str(self._machine.load),
        ]
        container = {"name": "predictor", "image": "benchmarks/slots", "command": command}
        return {"template": {"containers": [container]}}

    def url(self, name: str) -> str:
        """Return the address of an Inference's requests."""
        return f"{self._base}/{name}/v2/models/{name}/infer"

    async def until_zero(self, name: str) -> None:
        deadline = clock.monotonic() + ZERO_SECONDS
        while (await self._kube.list(kinds.POD, "default", labels=f"{INFERENCE_LABEL}={name}")).items:
            if clock.monotonic() > deadline:
                raise RuntimeError(f"{name} does not go to zero")
            await asyncio.sleep(POLL_SECONDS)

    async def until_ready(self, name: str, count: int) -> None:
        target = await self.target(name)
        await until(
            self._kube,
            kinds.DEPLOYMENT,
            target.name,
            lambda deployment: _ready(deployment) >= count,
            poll=POLL_SECONDS,
        )

    async def remove(self, name: str) -> None:
        """Delete an Inference, and wait until its processes have ended."""
        await self._kube.delete(kinds.INFERENCE, "default", name)
        await self.until_zero(name)

    async def target(self, name: str) -> ScaleTargetName:
        """Return the Deployment of an Inference's only predictor."""
        autoscaler = await self._kube.get(kinds.AUTOSCALER, "default", f"{name}-{ARM}")
        return ScaleTargetName("default", autoscaler["spec"]["scaleTargetRef"]["name"])

    @asynccontextmanager
    async def watched(self, name: str) -> AsyncIterator[Lives]:
        """Give the replicas of an Inference, kept up to date."""
        lives = Lives()
        informer = Informer(self._kube, kinds.POD, namespace="default", labels=f"{INFERENCE_LABEL}={name}")
        informer.on_change(lives.changed)
        async with _beside(informer.run()):
            await informer.synced.wait()
            yield lives

    async def play(self, name: str, moments: list[float], seconds: float, lives: Lives) -> Played:
        """Ask at these moments, in seconds from the start of the run."""
        start = clock.monotonic() + LEAD_SECONDS
        unix = clock.now().timestamp() + LEAD_SECONDS
        sent = json.dumps([start + moment for moment in moments])
        rows = await self.loaded("open_load.py", self.url(name), sent)
        await asyncio.sleep(max(start + seconds - clock.monotonic(), 0.0))
        answers = sorted(
            (LoadAnswer(at - start, took, status) for at, took, status, _ in rows),
            key=lambda answer: answer.at,
        )
        return Played(answers, lives, start, seconds, unix, await self.changes(name))

    async def changes(self, name: str) -> list[Object]:
        """Return `status.decisions` of an Inference's Autoscaler."""
        autoscaler = await self._kube.get(kinds.AUTOSCALER, "default", f"{name}-{ARM}")
        return list(autoscaler["status"].get("decisions") or [])

    async def loaded(self, program: str, url: str, sent: str) -> list[Any]:
        """Run a program of load with this input; return the rows of its output.

        Raises:
            RuntimeError: it fails.
        """
        async with _load(program, url) as process:
            output, _ = await process.communicate(sent.encode())
            if process.returncode:
                raise RuntimeError(f"the load ended with {process.returncode}")
        return [orjson.loads(line) for line in output.splitlines()]

    @asynccontextmanager
    async def driven(self, name: str, policy: Policy) -> AsyncIterator[list[tuple[float, Decision]]]:
        """Let a policy write the count at its interval, from the autoscaler's pages; return its decisions."""
        decisions: list[tuple[float, Decision]] = []
        async with _beside(self._drive(await self.target(name), policy, decisions)):
            yield decisions

    async def _drive(
        self, target: ScaleTargetName, policy: Policy, decisions: list[tuple[float, Decision]]
    ) -> None:
        gateways: dict[str, leases.GatewayPages] = {}
        renewals = leases.Renewals()
        board, pages = Board(), Pages(lambda: gateways)
        try:
            while True:
                began = clock.monotonic()
                listed = await self._kube.list(kinds.LEASE, DEFAULTS.controllers.lease_namespace)
                gateways = leases.pages(
                    listed.items, renewals.live(listed.items, clock.now(), clock.monotonic())
                )
                read = await pages.read()
                answered = {reading.gateway for reading in read.readings}
                unix_now = clock.now().timestamp()
                board.tick(read.readings, answered, {target}, read.held, began, unix_now=unix_now)
                deployment = await self._kube.get(kinds.DEPLOYMENT, target.namespace, target.name)
                desired = int(deployment["spec"].get("replicas", 1))
                seen = Replicas(desired, _ready(deployment))
                decision = policy.decide(Observation(clock.now().timestamp(), seen, board.take(target)))
                decisions.append((began, decision))
                if decision.replicas != desired:
                    await self._scale(target, decision.replicas)
                await asyncio.sleep(max(policy.interval - (clock.monotonic() - began), 0.0))
        finally:
            await pages.close()

    async def _scale(self, target: ScaleTargetName, count: int) -> None:
        patch = {"spec": {"replicas": count}}
        with suppress(errors.Conflict, errors.Unavailable):  # at the next interval
            await self._kube.patch(
                kinds.DEPLOYMENT, target.namespace, target.name, patch, subresource="scale"
            )


def _write_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "weights").write_bytes(b"none")


def _ready(deployment: Object) -> int:
    return int((deployment.get("status") or {}).get("readyReplicas", 0))


@asynccontextmanager
async def _beside(work: Any) -> AsyncIterator[None]:
    """Run a coroutine until the block ends; its errors are raised there."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _load(program: str, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    place = HERE if (HERE / program).exists() else HERE.parent
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(place / program),
        url,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def world(folder: Path, machine: SlotReplica) -> AsyncIterator[ScalingWorld]:
    """Yield a running product, and remove it afterwards."""
    stack = Stack(DataDir(folder / "data"))
    try:
        await stack.start()
        async with await connect(stack.where.kubeconfig, component="bench") as kube:
            yield ScalingWorld(kube, stack.where, machine)
    finally:
        await stack.end()
