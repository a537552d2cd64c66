"""The FastAPI application: which path is answered by what, and how every failure becomes a Status."""

import logging
from collections.abc import Awaitable, Callable

import orjson
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serving import errors
from serving.embedded.apiserver.discovery import documents
from serving.embedded.apiserver.handlers import asgi, paths
from serving.embedded.apiserver.handlers.objects import Resources
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.pods.node_proxy import NodeProxy
from serving.embedded.apiserver.pods.pod_usage import PodUsage
from serving.embedded.apiserver.status_errors import to_status

log = logging.getLogger(__name__)

Answer = Callable[[Request], Awaitable[ASGIApp]]


class _Handler:
    """One ASGI endpoint over a function from request to answer; failures are answered as Status objects."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive, send))
        except errors.ApiError as error:
            response = refusal(error, scope["path"])
        await response(scope, receive, send)


class Front:
    """Answers the paths of kinds itself and hands the others on.

    Nearly all requests are of kinds, and the framework's layers would cost them as much as a small write does.
    """

    def __init__(self, resources: Resources, others: ASGIApp) -> None:
        self._resources, self._others = resources, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1") if scope["type"] == "http" else ""
        address = paths.parse(path)
        if address is None:
            await self._others(scope, receive, send)
            return
        response: ASGIApp
        try:
            response = await self._resources.answer(asgi.Request(scope, receive), address)
        except errors.ApiError as error:
            response = refusal(error, path)
        except Exception as error:  # noqa: BLE001 a defect is answered as one, and logged, whatever it is
            response = defect(scope["method"], path, error)
        await response(scope, receive, send)


def refusal(error: errors.ApiError, path: str) -> asgi.Answer:
    """Return the answer for an error."""
    address = paths.parse(path)
    body = to_status(error) if address is None else to_status(error, address.kind, address.name or "")
    return asgi.Answer(orjson.dumps(body), error.code)


def build(resources: Resources, nodes: NodeProxy, usage: PodUsage) -> ASGIApp:
    """Wire the routes; FastAPI's own pages are off, since every path here is the Kubernetes API's."""
    app = FastAPI(title="slipway", openapi_url=None, docs_url=None, redoc_url=None)

    async def document(request: Request) -> ASGIApp:
        return documents.answer(request)

    async def health(_: Request) -> ASGIApp:
        return PlainTextResponse("ok")

    async def node(request: Request) -> ASGIApp:
        if request.method != "GET":
            message = "the server does not allow this method on the requested resource"
            raise errors.ApiError(405, "MethodNotAllowed", message)
        text = await nodes.text(request.path_params["node"], request.path_params["path"])
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    for path in ("/pods", "/namespaces/{namespace}/pods", "/namespaces/{namespace}/pods/{name}"):
        app.router.routes.append(Route(f"{pod_metrics.KIND.prefix}{path}", _Handler(usage.answer)))
    app.router.routes.append(Route("/api/v1/nodes/{node}/proxy/{path:path}", _Handler(node)))
    for path in ("/healthz", "/livez", "/readyz"):
        app.router.routes.append(Route(path, _Handler(health)))
    app.router.routes.append(Route("/{path:path}", _Handler(document)))
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, _http_failure)
    app.add_exception_handler(Exception, _defect)
    return Front(resources, app)


async def _http_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "")
    failure = errors.ApiError(error.status_code, reason, str(error.detail))
    return _response(refusal(failure, request.url.path))


async def _defect(request: Request, error: Exception) -> Response:
    return _response(defect(request.method, request.url.path, error))


def _response(answer: asgi.Answer) -> Response:
    return Response(answer.body, answer.code, media_type="application/json")


def defect(method: str, path: str, error: Exception) -> asgi.Answer:
    """Log what should never have happened, and return the answer for it."""
    log.error("%s %s failed", method, path, exc_info=error)
    return refusal(errors.ApiError(500, "InternalError", f"internal error: {type(error).__name__}"), path)
