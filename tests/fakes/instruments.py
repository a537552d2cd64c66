"""Fake instruments of trials: a replica's throughput follows from its cores, and no time passes.

`node` gives each Deployment a ready Pod.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from serving import errors
from serving.objects import Object
from serving.resources import kinds
from serving.resources.formats import quantity
from serving.resources.formats.cadvisor import ContainerUsage
from serving.resources.tuning.trial import TrialSpec
from tests.fakes.kube import FakeKube
from tuner.load.plan import LoadPlan, LoadRequest
from tuner.load.windows.samples import Samples

NS = "default"
LOAD: Object = {"mode": "closed", "levels": ["1"], "windowSeconds": 1, "warmupSeconds": 0}
"""One window."""


def trial(name: str, *, number: int = 1, cpu: str = "1", load: Object | None = None, **spec: Any) -> Object:
    container = {
        "name": "predictor",
        "image": "i",
        "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}},
    }
    body = {
        "experiment": "pe",
        "number": number,
        "template": {"spec": {"containers": [container]}},
        "modelName": "m",
        "load": load or LOAD,
        **spec,
    }
    return {"metadata": {"name": name, "namespace": NS}, "spec": body}


async def node(api: FakeKube) -> None:
    """Run one ready Pod of each Deployment, and end those that are deleted."""
    while True:
        for running_pod in api.find(kinds.POD):
            if "deletionTimestamp" in running_pod["metadata"]:
                api.remove(kinds.POD, NS, running_pod["metadata"]["name"])
        existing = {name for plural, _, name in api.objects if plural == "pods"}
        for plural, _, name in list(api.objects):
            if plural == "deployments" and name not in existing:
                api.add(kinds.POD, pod(api.objects[plural, NS, name]))
        await asyncio.sleep(0.001)


def pod(deployment: Object) -> Object:
    """Return the ready Pod of a Deployment."""
    meta, template = deployment["metadata"], deployment["spec"]["template"]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    running = {"name": "predictor", "restartCount": 0, "state": {"running": {}}}
    return {
        "metadata": {
            "name": meta["name"],
            "namespace": NS,
            "labels": template["metadata"]["labels"],
            "ownerReferences": [owner],
        },
        "spec": {**template["spec"], "nodeName": "local"},
        "status": {
            "podIP": "127.77.0.9",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [running],
        },
    }


class FakeInstruments:
    """`before_window` is called with the number of windows so far, and may raise or wait."""

    def __init__(self, before_window: Callable[[int], Any] | None = None) -> None:
        self.windows = 0
        self.generators: list[tuple[int, ...]] = []
        """Cores of each load generator that was started."""
        self.at_once = 0
        self.failing = False
        """Whether every request fails."""
        self.plans = 0
        """Number of times that the requests were planned."""
        self.before_plan: Callable[[int], Any] | None = None
        """Called with that number; may raise."""
        self.cores_busy: Callable[[], float] | None = None
        """Seconds for which the replica's cores have worked."""
        self._before_window = before_window
        self.throughput = 0.0
        """Requests per second of the replica, whose cores give it when the requests are planned."""

    async def plan(self, trial: Object, spec: TrialSpec, url: str) -> LoadPlan:
        self.plans += 1
        if self.before_plan is not None:
            self.before_plan(self.plans)
        limits = spec.template["spec"]["containers"][0]["resources"]["limits"]
        self.throughput = 200 * float(quantity.parse(limits["cpu"]))
        return LoadPlan("closed", (LoadRequest("POST", "/v2/models/m/infer"),))

    @asynccontextmanager
    async def generator(
        self, url: str, plan: LoadPlan, cores: tuple[int, ...]
    ) -> AsyncIterator["FakeInstruments"]:
        self.generators.append(cores)
        self.at_once += 1
        try:
            yield self
        finally:
            self.at_once -= 1

    async def window(self, level: float, seconds: float) -> Samples:
        self.windows += 1
        if self._before_window is not None:
            blocker = self._before_window(self.windows)
            if blocker is not None:
                await blocker
        count = max(2, round(self.throughput * seconds))
        ends = np.linspace(0, seconds, count, endpoint=False)
        latency = np.full(count, level / self.throughput)
        return Samples(
            mode="closed",
            level=level,
            seconds=seconds,
            intended=ends - latency,
            latency=latency,
            ok=np.full(count, not self.failing),
            tokens=np.zeros(count, dtype=np.int64),
            prompt_tokens=np.zeros(count, dtype=np.int64),
            ttft=np.full(count, -1.0),
            itl=np.empty(0),
            itl_done=np.empty(0),
            unfinished=np.empty(0),
            longest=30.0,
            errors=(("status 503: busy", count),) if self.failing else (),
        )

    async def usage(self, pod: Object) -> ContainerUsage | None:
        return ContainerUsage(working_set=1e6)

    def busy_seconds(self, address: str, cores: tuple[int, ...]) -> float | None:
        return self.cores_busy() if self.cores_busy is not None else None

    async def machine(self, pod: Object) -> str:
        return "a machine in memory"


def died() -> None:
    raise errors.Temporary("LoadFailed", "locust died")
