"""Dispatches requests for stored kinds to `ObjectHandlers`, and others to FastAPI; errors become Statuses."""

import logging
import re
from dataclasses import dataclass
from functools import partial

import orjson
from fastapi import FastAPI
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import clock, errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.handlers import documents
from serving.embedded.apiserver.handlers.nodes import Nodes
from serving.embedded.apiserver.handlers.objects import ObjectHandlers
from serving.embedded.apiserver.handlers.other_resources import OtherResources
from serving.embedded.apiserver.handlers.pod_usage import PodUsage
from serving.embedded.apiserver.handlers.request_metrics import RequestMetrics
from serving.embedded.apiserver.nodes.node_proxy import NodeProxy
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.requests import paths
from serving.embedded.apiserver.requests.asgi import AsgiRequest, JsonResponse
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.status_errors import to_status
from serving.resources import kinds

log = logging.getLogger(__name__)

_WATCH = re.compile(rb"(?:^|&)watch(?:=(?![0fF])[^&]*)?(?:&|$)")
"""The parameter `watch` with a value other than those that `queries.watches` takes for false."""
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
"""Every route takes all methods, and its handler refuses wrong ones: otherwise the last route, which matches
every path, would get them."""


class Dispatcher:
    """Dispatches requests, and counts them in the server's metrics.

    Nearly all requests are for stored kinds, and FastAPI's layers would cost as much as a small write.
    """

    def __init__(
        self, stored_kinds: StoredKinds, objects: ObjectHandlers, others: ASGIApp, metrics: RequestMetrics
    ) -> None:
        self._kinds = stored_kinds
        self._objects, self._others, self._metrics = objects, others, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path, started = scope["raw_path"].decode("latin-1"), clock.monotonic()
        address = paths.parse(self._kinds, path)
        series = self._metrics.of(scope["method"], address, path, watches=_watches(scope["query_string"]))
        code = 0  # until a response begins
        series.begin()
        try:
            if address is not None:
                response = await self._answer(AsgiRequest(scope, receive), address, path)
                # Watches and logs are streams, which begin with 200.
                code = response.code if isinstance(response, JsonResponse) else 200
                await response(scope, receive, send)
                return

            async def send_and_record_code(message: Message) -> None:
                nonlocal code
                if message["type"] == "http.response.start":
                    code = message["status"]
                await send(message)

            await self._others(scope, receive, send_and_record_code)
        finally:
            series.end(code, clock.monotonic() - started)

    async def _answer(self, request: AsgiRequest, address: paths.Address, path: str) -> ASGIApp:
        try:
            return await self._objects.answer(request, address)
        except errors.ApiError as error:
            return _failure(self._kinds, error, path)
        except Exception as error:  # noqa: BLE001 any defect is logged and becomes a 500
            return _defect(self._kinds, request.method, path, error)


def _watches(query: bytes) -> bool:
    """Whether a request counts as a watch in the metrics; unlike `queries.watches`, no query is refused."""
    return b"watch" in query and _WATCH.search(query) is not None


@dataclass(frozen=True)
class Handlers:
    """The handlers of requests, one for each group of resources."""

    objects: ObjectHandlers
    proxy: NodeProxy
    nodes: Nodes
    usage: PodUsage
    others: OtherResources
    metrics: RequestMetrics


def build(stored_kinds: StoredKinds, handlers: Handlers) -> ASGIApp:
    """Return the server's application: a Dispatcher over a FastAPI application without its own OpenAPI."""
    app = FastAPI(title="slipway", openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.add_exception_handler(errors.ApiError, partial(_on_api_error, stored_kinds))
    app.add_exception_handler(HTTPException, partial(_on_http_exception, stored_kinds))
    app.add_exception_handler(Exception, partial(_on_exception, stored_kinds))

    @app.api_route("/healthz", methods=_METHODS)
    @app.api_route("/livez", methods=_METHODS)
    @app.api_route("/readyz", methods=_METHODS)
    async def health() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.api_route("/metrics", methods=_METHODS)
    async def metrics(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise status_errors.method_not_allowed()
        return Response(handlers.metrics.page(), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    @app.api_route("/api/v1/nodes/{node}/proxy/{path:path}", methods=_METHODS)
    async def node_proxy(request: Request, node: str, path: str) -> PlainTextResponse:
        if request.method != "GET":
            raise status_errors.method_not_allowed()
        text = await handlers.proxy.text(node, path)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    for path in ("", "/{name}"):
        app.add_api_route(f"{kinds.NODE.path()}{path}", handlers.nodes.answer, methods=_METHODS)
    for path in ("/pods", "/namespaces/{namespace}/pods", "/namespaces/{namespace}/pods/{name}"):
        app.add_api_route(f"{pod_metrics.KIND.prefix}{path}", handlers.usage.answer, methods=_METHODS)

    @app.api_route("/{path:path}", methods=_METHODS)
    async def other(request: Request) -> Response:
        return await handlers.others.answer(request) or documents.answer(stored_kinds, request)

    return Dispatcher(stored_kinds, handlers.objects, app, handlers.metrics)


async def _on_api_error(stored_kinds: StoredKinds, request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.ApiError)
    return _response(_failure(stored_kinds, error, request.url.path))


async def _on_http_exception(stored_kinds: StoredKinds, request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "")
    refused = errors.ApiError(error.status_code, reason, str(error.detail))
    return _response(_failure(stored_kinds, refused, request.url.path))


async def _on_exception(stored_kinds: StoredKinds, request: Request, error: Exception) -> Response:
    return _response(_defect(stored_kinds, request.method, request.url.path, error))


def _response(response: JsonResponse) -> Response:
    return Response(response.body, response.code, media_type="application/json")


def _failure(stored_kinds: StoredKinds, error: errors.ApiError, path: str) -> JsonResponse:
    """Return the Status of an error, with the kind and name that the path has."""
    address = paths.parse(stored_kinds, path)
    status = to_status(error) if address is None else to_status(error, address.kind, address.name or "")
    return JsonResponse(orjson.dumps(status), error.code)


def _defect(stored_kinds: StoredKinds, method: str, path: str, error: Exception) -> JsonResponse:
    """Log an unexpected exception, and return the response for it."""
    log.error("%s %s failed", method, path, exc_info=error)
    failure = errors.ApiError(500, "InternalError", f"internal error: {type(error).__name__}")
    return _failure(stored_kinds, failure, path)
