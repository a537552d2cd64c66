"""`/apis/metrics.k8s.io/v1beta1/...pods`: current usage of Pods, from two samples of the node's counters."""

import asyncio

import orjson
from starlette.requests import Request
from starlette.responses import Response

from serving import clock
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.handlers import lists
from serving.embedded.apiserver.nodes.node_proxy import NodeProxy
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.pods.pod_metrics import Sample
from serving.embedded.apiserver.requests.paths import Address
from serving.embedded.apiserver.storage.history import ObjectKey
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.resources import kinds
from serving.resources.formats import cadvisor

MIN_WINDOW_SECONDS = 0.5
"""Shortest time between the two samples: CPU time is counted in hundredths of a second."""
MAX_WINDOW_SECONDS = 30.0
"""An older sample is not compared with a new one: usage is current. metrics-server takes one every 15 s."""


class PodUsage:
    """Answers requests for PodMetrics, and keeps the last sample, so that polling clients do not wait."""

    def __init__(self, store: ObjectStore, nodes: NodeProxy) -> None:
        self._store, self._nodes = store, nodes
        self._last: Sample | None = None

    async def answer(self, request: Request) -> Response:
        """Return the metrics of the Pods of all namespaces or of one, or of one Pod.

        Raises:
            errors.NotFound: the Pod does not exist or none of its containers runs.
            errors.ApiError: 503, the node agent does not answer; 405.
        """
        if request.method != "GET":
            raise status_errors.method_not_allowed()
        namespace, name = request.path_params.get("namespace"), request.path_params.get("name")
        before, after = await self._samples()
        if name is None:
            entries = lists.select(self._store, Address(kinds.POD, namespace), request.query_params)
            items = [pod_metrics.of(entry.object, before, after) for _, entry in entries]
            return _json(orjson.dumps(pod_metrics.listing([item for item in items if item is not None])))
        entry = self._store.get(kinds.POD, ObjectKey(namespace or "", name))
        item = None if entry is None else pod_metrics.of(entry.object, before, after)
        if item is None:
            raise status_errors.not_found(pod_metrics.KIND, name)
        return _json(orjson.dumps(item))

    async def _samples(self) -> tuple[Sample, Sample]:
        """Return an earlier sample and a new one, MIN_WINDOW_SECONDS apart or more."""
        last = self._last
        if last is None or not 0 <= (clock.now() - last.at).total_seconds() <= MAX_WINDOW_SECONDS:
            last = await self._sample()
        missing = MIN_WINDOW_SECONDS - (clock.now() - last.at).total_seconds()
        if missing > 0:
            await asyncio.sleep(missing)
        self._last = now = await self._sample()
        return last, now

    async def _sample(self) -> Sample:
        text = await self._nodes.metrics()
        return Sample(clock.now(), cadvisor.containers(text.decode()))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
