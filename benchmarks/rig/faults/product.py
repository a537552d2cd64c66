"""The product under test with three arms: its processes, and whether it is healthy."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson

from rig import cold_models
from rig.objects import is_ready, manifest, until
from serving import clock, errors
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import kinds
from serving.resources.names import INFERENCE_LABEL, PREDICTOR_LABEL
from serving.system import processes, procfs
from serving.system.processes import ProcessIdentity

SPLIT, SOLE = "split", "sole"
"""The Inferences: two arms of two replicas each, and one arm of one replica."""
ARMS = {SPLIT: ("stable", "canary"), SOLE: ("only",)}
REPLICAS = {SPLIT: 2, SOLE: 1}
"""Of each arm."""
FEATURES = 64
TRY_SECONDS = 2.0
"""`spec.routing.timeouts.perTry`: the longest attempt at a replica before another one is tried."""
ANSWER_SECONDS = 2.0
"""Longest wait for the API."""
POLL_SECONDS = 0.1


class Product:
    """A running product. It is healthy if every process runs and every object is Ready."""

    def __init__(self, stack: Stack, kube: Kube) -> None:
        self._stack = stack
        self.kube = kube
        self.data = stack.where

    @property
    def base(self) -> str:
        """URL of the namespace at the gateway."""
        return f"http://127.0.0.1:{orjson.loads(self.data.ports.read_bytes())['gateway']}/default"

    def component(self, name: str) -> ProcessIdentity:
        return _running(self.data.identity(name))

    def envoy(self) -> ProcessIdentity:
        return _running(self.data.gateway / "envoy.json")

    def zygote(self) -> ProcessIdentity:
        return _running(next(iter(sorted(self.data.zygotes.glob("*.json"))), self.data.zygotes / "none"))

    async def replica(self, inference: str) -> ProcessIdentity:
        """Return the main process of the first replica of the first arm."""
        return (await self._first(inference))[1]

    async def shim(self, inference: str) -> ProcessIdentity:
        """Return the container shim of the first replica of the first arm."""
        return (await self._first(inference))[0]

    async def _first(self, inference: str) -> tuple[ProcessIdentity, ProcessIdentity]:
        labels = f"{INFERENCE_LABEL}={inference},{PREDICTOR_LABEL}={ARMS[inference][0]}"
        pods = (await self.kube.list(kinds.POD, "default", labels=labels)).items
        return self._processes(min(pods, key=lambda pod: str(pod["metadata"]["name"])))

    def _processes(self, pod: Object) -> tuple[ProcessIdentity, ProcessIdentity]:
        runs = PodDirectory(self.data.pods / pod["metadata"]["uid"]).latest()
        identities = next((run.identities() for run in runs), None)
        if identities is None:
            raise LookupError(f"{pod['metadata']['name']} does not run")
        return identities

    async def start_up(self) -> None:
        """Start another `up`, after the first was killed."""
        await self._stack.start()

    async def restart(self, inference: str) -> None:
        """Replace every replica of the first arm, as `kubectl rollout restart`."""
        labels = f"{INFERENCE_LABEL}={inference},{PREDICTOR_LABEL}={ARMS[inference][0]}"
        stamp = {"kubectl.kubernetes.io/restartedAt": clock.rfc3339_micro(clock.now())}
        patch = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        for deployment in (await self.kube.list(kinds.DEPLOYMENT, "default", labels=labels)).items:
            await self.kube.patch(kinds.DEPLOYMENT, "default", deployment["metadata"]["name"], patch)

    async def problem(self) -> str:
        """Return why the product is not healthy; empty if it is."""
        try:
            for name in ("up", *COMPONENTS):
                _check_runs(name, self.component(name))
            _check_runs("Envoy", self.envoy())
            _check_runs("the zygote", self.zygote())
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._problem_of_objects()
        except LookupError as error:
            return str(error)
        except (errors.ApiError, errors.Unavailable, TimeoutError) as error:
            return f"the API: {error!r}"

    async def _problem_of_objects(self) -> str:
        for name, arms in ARMS.items():
            inference = await self.kube.get(kinds.INFERENCE, "default", name)
            if not is_ready(inference):
                return f"{name} is not Ready"
            pods = (await self.kube.list(kinds.POD, "default", labels=f"{INFERENCE_LABEL}={name}")).items
            if len(pods) != len(arms) * REPLICAS[name]:
                return f"{name} has {len(pods)} Pods"
            for pod in pods:
                if not is_ready(pod):
                    return f"{pod['metadata']['name']} is not Ready"
                for process in self._processes(pod):
                    _check_runs(pod["metadata"]["name"], process)
        return ""


def _running(record: Path) -> ProcessIdentity:
    """Return a recorded process that runs.

    Raises:
        LookupError: it does not run.
    """
    running = processes.read_running(record)
    if running is None:
        raise LookupError(f"{record.stem} does not run")
    return running[0]


def _check_runs(name: str, process: ProcessIdentity) -> None:
    """Raise LookupError for a process that has ended or is stopped."""
    fields = procfs.stat(process.pid) if processes.is_alive(process) else None
    if fields is None or fields[procfs.STATE] == "T":
        raise LookupError(f"{name} does not run")


@contextlib.asynccontextmanager
async def deployed(folder: Path) -> AsyncIterator[Product]:
    """Yield a running product with the Inferences, and remove it afterwards."""
    model = cold_models.sklearn(folder / "model")
    stack = Stack(DataDir(folder / "data"))
    try:
        await stack.start()
        async with await connect(stack.where.kubeconfig, component="bench") as kube:
            source = {"modelName": "digits", "source": {"path": str(model.directory)}}
            await kube.create(kinds.MODEL_VERSION, manifest(kinds.MODEL_VERSION, "digits-1", source))
            for name in ARMS:
                await kube.create(kinds.INFERENCE, manifest(kinds.INFERENCE, name, _spec(name)))
            for name in ARMS:
                await until(kube, kinds.INFERENCE, name, is_ready)
            yield Product(stack, kube)
    finally:
        await stack.end()


def _spec(inference: str) -> Object:
    count = REPLICAS[inference]
    arms = [
        {
            "name": arm,
            "modelVersion": "digits-1",
            "trafficWeight": 50,
            "autoScale": {"minReplicas": count, "maxReplicas": count},
        }
        for arm in ARMS[inference]
    ]
    routing = {"timeouts": {"perTry": f"{TRY_SECONDS:g}s"}}
    return {"framework": "sklearn", "predictors": arms, "routing": routing}
