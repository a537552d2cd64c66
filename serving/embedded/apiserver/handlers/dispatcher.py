"""Dispatches requests for kinds to their handlers, others to FastAPI; errors become Statuses."""

import logging

import orjson
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.handlers import documents
from serving.embedded.apiserver.handlers.objects import ObjectHandlers
from serving.embedded.apiserver.handlers.pod_usage import PodUsage
from serving.embedded.apiserver.pods import pod_metrics
from serving.embedded.apiserver.pods.node_proxy import NodeProxy
from serving.embedded.apiserver.requests import paths
from serving.embedded.apiserver.requests.asgi import AsgiRequest, JsonResponse
from serving.embedded.apiserver.status_errors import to_status

log = logging.getLogger(__name__)

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
"""Every route takes all methods, so that a Status refuses the wrong ones."""


class Dispatcher:
    """Handles requests for kinds, and passes the others to FastAPI.

    Nearly all requests are for kinds, and a framework's layers would cost as much as a small write.
    """

    def __init__(self, objects: ObjectHandlers, others: ASGIApp) -> None:
        self._objects, self._others = objects, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1") if scope["type"] == "http" else ""
        address = paths.parse(path)
        if address is None:
            await self._others(scope, receive, send)
            return
        response: ASGIApp
        try:
            response = await self._objects.answer(AsgiRequest(scope, receive), address)
        except errors.ApiError as error:
            response = _failure(error, path)
        except Exception as error:  # noqa: BLE001 any defect is logged and becomes a 500
            response = _defect(scope["method"], path, error)
        await response(scope, receive, send)


def build(objects: ObjectHandlers, nodes: NodeProxy, usage: PodUsage) -> ASGIApp:
    """Return the server's application, with the OpenAPI documents of Kubernetes instead of FastAPI's."""
    app = FastAPI(title="slipway", openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.add_exception_handler(errors.ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_exception)

    @app.api_route("/healthz", methods=_METHODS)
    @app.api_route("/livez", methods=_METHODS)
    @app.api_route("/readyz", methods=_METHODS)
    async def health() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.api_route("/api/v1/nodes/{node}/proxy/{path:path}", methods=_METHODS)
    async def node_proxy(request: Request, node: str, path: str) -> PlainTextResponse:
        if request.method != "GET":
            raise status_errors.method_not_allowed()
        return PlainTextResponse(await nodes.text(node, path), media_type="text/plain; version=0.0.4")

    for path in ("/pods", "/namespaces/{namespace}/pods", "/namespaces/{namespace}/pods/{name}"):
        app.add_api_route(f"{pod_metrics.KIND.prefix}{path}", usage.answer, methods=_METHODS)

    @app.api_route("/{path:path}", methods=_METHODS)
    async def document(request: Request) -> Response:
        return documents.answer(request)

    return Dispatcher(objects, app)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.ApiError)
    return _response(_failure(error, request.url.path))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "")
    return _response(
        _failure(errors.ApiError(error.status_code, reason, str(error.detail)), request.url.path)
    )


async def _on_exception(request: Request, error: Exception) -> Response:
    return _response(_defect(request.method, request.url.path, error))


def _response(response: JsonResponse) -> Response:
    return Response(response.body, response.code, media_type="application/json")


def _failure(error: errors.ApiError, path: str) -> JsonResponse:
    address = paths.parse(path)
    status = to_status(error) if address is None else to_status(error, address.kind, address.name or "")
    return JsonResponse(orjson.dumps(status), error.code)


def _defect(method: str, path: str, error: Exception) -> JsonResponse:
    """Log an unexpected exception, and return the response for it."""
    log.error("%s %s failed", method, path, exc_info=error)
    return _failure(errors.ApiError(500, "InternalError", f"internal error: {type(error).__name__}"), path)
