"""`/apis/metrics.k8s.io/v1beta1/...pods`: what Pods use now, measured between two looks at the node."""

import asyncio

import orjson
from starlette.requests import Request

from serving import clock, errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.handlers import lists
from serving.embedded.apiserver.handlers.asgi import Answer
from serving.embedded.apiserver.handlers.paths import Address
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.pods.node_proxy import NodeProxy
from serving.embedded.apiserver.pods.pod_metrics import Look
from serving.embedded.apiserver.storage.history import Key
from serving.embedded.apiserver.storage.store import Store
from serving.resources import cadvisor, kinds

SHORTEST_SECONDS = 0.5
"""Between the two looks: the processor's clock here ticks a hundred times a second."""
LONGEST_SECONDS = 30.0
"""An earlier look than this says too little of now; metrics-server looks every 15 s."""


class PodUsage:
    """Remembers the last look, so that who asks again and again does not wait."""

    def __init__(self, store: Store, nodes: NodeProxy) -> None:
        self._store, self._nodes = store, nodes
        self._last: Look | None = None

    async def answer(self, request: Request) -> Answer:
        """Answer a GET of the Pods of all namespaces, of one, or of one Pod.

        Raises:
            errors.NotFound: there is no such Pod, or nothing of it runs.
            errors.ApiError: 503, the node agent does not answer; 405.
        """
        if request.method != "GET":
            message = "the server does not allow this method on the requested resource"
            raise errors.ApiError(405, "MethodNotAllowed", message)
        namespace, name = request.path_params.get("namespace"), request.path_params.get("name")
        before, after = await self._looks()
        if name is None:
            found = lists.select(self._store, Address(kinds.POD, namespace), request.query_params)
            items = [pod_metrics.of(entry.object, before, after) for _, entry in found]
            return Answer(orjson.dumps(pod_metrics.listing([item for item in items if item is not None])))
        known = self._store.get(kinds.POD, Key(namespace or "", name))
        item = None if known is None else pod_metrics.of(known.object, before, after)
        if item is None:
            raise status_errors.not_found(pod_metrics.KIND, name)
        return Answer(orjson.dumps(item))

    async def _looks(self) -> tuple[Look, Look]:
        """Return an earlier look and one of now."""
        last = self._last
        if last is None or not 0 <= (clock.now() - last.at).total_seconds() <= LONGEST_SECONDS:
            last = await self._look()
        missing = SHORTEST_SECONDS - (clock.now() - last.at).total_seconds()
        if missing > 0:
            await asyncio.sleep(missing)
        self._last = now = await self._look()
        return last, now

    async def _look(self) -> Look:
        text = await self._nodes.metrics()
        return Look(clock.now(), cadvisor.containers(text.decode()))
