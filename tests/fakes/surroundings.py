"""The components around the Inference controller in memory: a node with ready replicas, and a gateway.

surroundings = Surroundings(api)
surroundings.start()
surroundings.broken.add("digits-v2")     # Pods of this ModelVersion never become ready
"""

import asyncio
import datetime as dt
from typing import Any

from serving import clock
from serving.objects import Object
from serving.resources import kinds, names
from tests.fakes.kube import FakeKube

NS = "default"


class Surroundings:
    """Reacts to every change of the API until stopped; its own writes never fail."""

    def __init__(self, api: FakeKube, *, gateway: str = "gw") -> None:
        self.api = api
        self.gateway = gateway
        self.broken: set[str] = set()
        self.sick: set[str] = set()
        """Beginnings of the names of backends that answer a probe with 503."""
        self.is_accepting = True
        """Whether the gateway accepts changes of Routes."""
        self._accepted: dict[str, tuple[int, Object]] = {}
        """Generation and spec of each Route that the gateway serves."""
        self.is_probing = True
        self.history: list[Object] = []
        """Specs of the Route, in the order in which the gateway saw them."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """React from now on."""
        renew = clock.rfc3339_micro(clock.now() + dt.timedelta(hours=1))
        self.api.add(
            kinds.LEASE,
            {
                "metadata": {"name": f"slipway-gateway-{self.gateway}", "namespace": NS},
                "spec": {"renewTime": renew, "leaseDurationSeconds": 15},
            },
        )
        self._task = asyncio.create_task(self._react())

    async def stop(self) -> None:
        """Stop reacting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _react(self) -> None:
        changes_seen = -1
        while True:
            if len(self.api.log) != changes_seen:
                changes_seen = len(self.api.log)
                self._update()
            await asyncio.sleep(0.001)

    def _update(self) -> None:
        for deployment in self.api.find(kinds.DEPLOYMENT):
            meta = deployment["metadata"]
            annotations = deployment["spec"]["template"]["metadata"]["annotations"]
            ok = annotations[names.MODEL_VERSION_ANNOTATION] not in self.broken
            count = deployment["spec"]["replicas"]
            status = {"replicas": count, "readyReplicas": count if ok else 0}
            self.api.change(kinds.DEPLOYMENT, NS, meta["name"], {"status": status})
        for route in self.api.find(kinds.ROUTE):
            meta = route["metadata"]
            if self.is_accepting:
                self._accepted[meta["name"]] = meta["generation"], route["spec"]
                if not self.history or self.history[-1] != route["spec"]:
                    self.history.append(route["spec"])
            if meta["name"] in self._accepted:
                generation, spec = self._accepted[meta["name"]]
                entry = {
                    "name": self.gateway,
                    "acceptedGeneration": generation,
                    "address": "127.0.0.1:8080",
                    "probes": self._probe(spec),
                }
                self.api.change(kinds.ROUTE, NS, meta["name"], {"status": {"gateways": [entry]}})

    def _probe(self, spec: Object) -> list[Object]:
        ready = {
            deployment["metadata"]["name"]
            for deployment in self.api.find(kinds.DEPLOYMENT)
            if (deployment.get("status") or {}).get("readyReplicas")
        }
        return [
            {
                "backend": backend["name"],
                "message": "GET /v2/health/ready: 503"
                if backend["name"].startswith(tuple(self.sick))
                else "",
            }
            for backend in spec["backends"]
            if self.is_probing and "probe" in backend and backend["name"] in ready
        ]


def ready_version(name: str, framework: str = "sklearn", namespace: str = NS) -> Object:
    """Return a ModelVersion that has been built."""
    digest = "sha256:" + (name.encode().hex() * 32)[:64]
    return {
        "apiVersion": kinds.MODEL_VERSION.api_version,
        "kind": "ModelVersion",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"modelName": "digits", "source": {"path": "/somewhere"}},
        "status": {
            "phase": "Ready",
            "image": f"slipway.local/{namespace}/digits@{digest}",
            "digest": digest,
            "framework": framework,
        },
    }


def blocked_version(name: str, reason: str = "ContainsCode") -> Object:
    """Return a ModelVersion that a policy blocks."""
    version = ready_version(name)
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": reason,
        "message": "model.pkl (Pickle) contains code",
    }
    return {**version, "status": {**version["status"], "phase": "Blocked", "conditions": [ready]}}


def predictor(name: str, version: str, weight: int = 1, **fields: Any) -> Object:
    """Return one entry of `spec.predictors`."""
    return {"name": name, "modelVersion": version, "trafficWeight": weight, **fields}


def inference(*predictors: Object, name: str = "digits", **spec: Any) -> Object:
    """Return an Inference as a user writes it."""
    return {
        "apiVersion": kinds.INFERENCE.api_version,
        "kind": "Inference",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"framework": "sklearn", "predictors": list(predictors), **spec},
    }
