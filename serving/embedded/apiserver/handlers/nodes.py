"""`/api/v1/nodes`: the one node, described when it is asked for, as it is not stored."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving import clock
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import not_offered
from serving.embedded.apiserver.handlers import documents, rendering
from serving.embedded.apiserver.nodes import machine, node_object
from serving.embedded.apiserver.nodes.node_proxy import NodeProxy
from serving.embedded.apiserver.requests import queries
from serving.embedded.apiserver.storage import pages
from serving.embedded.apiserver.storage.history import ObjectKey, ObjectVersion
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.watches import Hub, line
from serving.embedded.apiserver.storage.writer import DEFAULT_NAMESPACE
from serving.resources import kinds
from serving.settings import ApiSettings

POLL_SECONDS = 1.0
"""Between two polls of the node agent by a watch; each poll is a request on loopback."""


class Nodes:
    """Answers requests for nodes, and keeps the time of the last change of the condition Ready."""

    def __init__(self, store: ObjectStore, hub: Hub, proxy: NodeProxy, settings: ApiSettings) -> None:
        self._store, self._hub, self._proxy, self._settings = store, hub, proxy, settings
        self._trouble: str | None = None
        """Why the node agent did not answer when Ready last changed; empty if it answered, None before the
        first request."""
        self._changed = ""
        """RFC 3339, when Ready last changed."""
        self._version = 0
        """resourceVersion of the Node since then."""

    async def answer(self, request: Request) -> Response:
        """Return the list of nodes, the node, or a watch of it.

        Raises:
            errors.NotFound: there is no such node.
            errors.ApiError: 405 for a write, 400 for invalid parameters, 406.
        """
        if request.method not in ("GET", "HEAD"):
            raise status_errors.method_not_allowed(not_offered.NODES_ARE_READ_ONLY)
        query, accepted = request.query_params, queries.accepted(request.headers.get("accept", ""))
        include, name = queries.included_object(query), request.path_params.get("name")

        def render(entry: ObjectVersion) -> bytes:
            return rendering.entry(
                self._store.kinds, kinds.NODE, entry, accepted, now=clock.now(), include=include
            )

        if name is None and queries.watches(query):
            return StreamingResponse(self._watch(request, render), media_type="application/json")
        entry = await self._node()
        if name is not None:
            if name != self._proxy.name:
                raise status_errors.not_found(kinds.NODE, name)
            return _json(render(entry))
        matches = queries.matcher(kinds.NODE, query)
        page = pages.ListPage([entry] if matches is None or matches(entry.object) else [])
        version = max(self._store.version, entry.version)
        return _json(
            rendering.listing(
                self._store.kinds, kinds.NODE, page, version, accepted, now=clock.now(), include=include
            )
        )

    async def _node(self) -> ObjectVersion:
        """Ask the node agent whether it answers, and return the Node.

        The Node's resourceVersion and the message of Ready change only when Ready changes.
        """
        trouble = await self._proxy.trouble()
        if self._trouble is None or bool(trouble) != bool(self._trouble):
            self._trouble = trouble
            self._changed = clock.rfc3339(clock.now())
            # Newer than each version that a client can have from a list.
            self._version = max(self._store.version, self._version) + 1
        # The Node is as old as the namespace `default`, which the first start creates.
        default = self._store.get(kinds.NAMESPACE, ObjectKey("", DEFAULT_NAMESPACE))
        return ObjectVersion(
            node_object.node(
                machine.this_machine(),
                self._proxy.name,
                version=documents.version()["gitVersion"],
                created=self._changed if default is None else default.object["metadata"]["creationTimestamp"],
                changed=self._changed,
                resource_version=str(self._version),
                trouble=self._trouble,
            )
        )

    def _watch(self, request: Request, render: Callable[[ObjectVersion], bytes]) -> AsyncIterator[bytes]:
        query = request.query_params
        if queries.flag(query, "sendInitialEvents"):
            cause = status_errors.forbidden("sendInitialEvents", "is not offered for nodes: list them first")
            raise status_errors.unprocessable(kinds.NODE, "", [cause])
        requested = queries.number(query, "resourceVersion") or 0
        seconds = queries.number(query, "timeoutSeconds") or self._settings.watch_seconds
        matches = queries.matcher(kinds.NODE, query)

        async def events() -> AsyncIterator[bytes]:
            sent_version = requested
            end = clock.monotonic() + min(seconds, self._settings.watch_seconds)
            while not self._hub.stopping and clock.monotonic() < end:
                entry = await self._node()
                if entry.version > sent_version and (matches is None or matches(entry.object)):
                    # A client with a resourceVersion has the node from its list.
                    yield line("MODIFIED" if sent_version else "ADDED", render(entry))
                    sent_version = entry.version
                await asyncio.sleep(POLL_SECONDS)

        return events()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
