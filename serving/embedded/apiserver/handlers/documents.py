"""Discovery, OpenAPI and version: documents that depend on the kinds alone and are serialized once."""

import hashlib
import platform
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import api_groups, openapi
from serving.embedded.apiserver.requests import queries
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds

KUBERNETES = ("1", "32")
"""The Kubernetes version (major, minor) whose API is served; clients choose features by it."""
_OPENAPI = "/openapi/v3"


class _Serialized(NamedTuple):
    """A document in JSON, and its ETag."""

    body: bytes
    etag: str


def answer(stored_kinds: StoredKinds, request: Request) -> Response:
    """Return the document of the request's path, or a 304 if the client has it.

    Raises:
        errors.ApiError: 404 for an unknown document, 405 for a write, 406 if the client does not accept JSON.
    """
    path = request.url.path.rstrip("/")
    if request.method not in ("GET", "HEAD"):
        raise (
            status_errors.method_not_allowed() if _known(stored_kinds, path) else status_errors.no_resource()
        )
    if path.startswith(_OPENAPI):
        return _openapi(stored_kinds, request, _openapi_name(path))
    accepted = queries.accepted(request.headers.get("accept", ""))
    is_aggregated = accepted.group == "apidiscovery.k8s.io" and path in ("/api", "/apis")
    if is_aggregated:
        media = f"application/json;g=apidiscovery.k8s.io;v={accepted.version};as=APIGroupDiscoveryList"
        return _response(request, _aggregated(stored_kinds, path == "/api", accepted.version), media)
    return _response(request, _document(stored_kinds, path))


def _known(stored_kinds: StoredKinds, path: str) -> bool:
    try:
        if path.startswith(_OPENAPI):
            _openapi_document(stored_kinds, _openapi_name(path))
        else:
            _document(stored_kinds, path)
    except errors.ApiError:
        return False
    return True


@cache
def _document(stored_kinds: StoredKinds, path: str) -> _Serialized:
    # Not all leading slashes: each number of them would be a path of its own in the cache.
    parts = path.removeprefix("/").split("/")
    served = api_groups.served_kinds(stored_kinds)
    document: dict[str, Any] | None
    if path == "":
        document = {
            "paths": [
                "/api",
                "/api/v1",
                "/apis",
                "/healthz",
                "/livez",
                "/metrics",
                "/openapi/v3",
                "/readyz",
                "/version",
            ]
        }
    elif path == "/version":
        document = version()
    elif parts == ["api"]:
        document = api_groups.legacy_versions()
    elif parts == ["apis"]:
        document = api_groups.groups(served)
    elif parts[0] == "apis" and len(parts) == 2:
        document = api_groups.group(served, parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        document = api_groups.resources(served, parts[1], parts[2])
    elif parts == ["api", "v1"]:
        document = api_groups.resources(served, "", "v1")
    else:
        document = None
    if document is None:
        raise status_errors.no_resource()
    return _serialized(document)


@cache
def _aggregated(
    stored_kinds: StoredKinds,
    core: bool,  # noqa: FBT001 mirrors api_groups.aggregated
    version: str,
) -> _Serialized:
    document = dict(api_groups.aggregated(api_groups.served_kinds(stored_kinds), core))
    document["apiVersion"] = f"apidiscovery.k8s.io/{version}"
    return _serialized(document)


def _openapi_name(path: str) -> str:
    """Return the group version of a path below `/openapi/v3`, such as `apis/apps/v1`; empty for the index."""
    return path.removeprefix(_OPENAPI).strip("/")


def _openapi(stored_kinds: StoredKinds, request: Request, name: str) -> Response:
    accept = request.headers.get("accept", "")
    if accept and not any(word in accept for word in ("json", "*/*")):
        raise errors.ApiError(406, "NotAcceptable", "only application/json is served")
    return _response(request, _openapi_document(stored_kinds, name))


@cache
def _openapi_document(stored_kinds: StoredKinds, name: str) -> _Serialized:
    document = openapi.index(stored_kinds) if name == "" else openapi.document(stored_kinds, name)
    if document is None:
        raise status_errors.no_resource()
    return _serialized(document)


@cache
def version() -> dict[str, str]:
    """Return the document `/version`, with the members of Kubernetes' `version.Info`."""
    major, minor = KUBERNETES
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+slipway.{metadata.version('slipway')}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def _serialized(document: dict[str, Any]) -> _Serialized:
    body = orjson.dumps(document)
    return _Serialized(body, f'"{hashlib.sha256(body).hexdigest().upper()}"')


def _response(request: Request, document: _Serialized, media: str = "application/json") -> Response:
    headers = {"ETag": document.etag, "Vary": "Accept", "Cache-Control": "no-cache, private"}
    if request.headers.get("if-none-match") == document.etag:
        return Response(status_code=304, headers=headers)
    return Response(document.body, headers={**headers, "Content-Type": media})
