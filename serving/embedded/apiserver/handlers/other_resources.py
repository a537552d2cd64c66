"""Resources without stored objects: reviews of access are answered, empty kinds listed, others refused."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from serving import clock
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import access_reviews, api_groups, empty_kinds, not_offered
from serving.embedded.apiserver.handlers import rendering
from serving.embedded.apiserver.requests import bodies, paths, queries
from serving.embedded.apiserver.requests.asgi import AsgiRequest
from serving.embedded.apiserver.requests.paths import ResourcePath
from serving.embedded.apiserver.storage import pages
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.resources.kinds import Kind
from serving.settings import ApiSettings

COMMAND_HEADER = "kubectl-command"
"""kubectl's name of its command, such as `kubectl rollout undo`
(https://github.com/kubernetes/enhancements/tree/master/keps/sig-cli/859-kubectl-headers)."""


class OtherResources:
    """Answers requests for resources that are not stored."""

    def __init__(self, store: ObjectStore, settings: ApiSettings) -> None:
        self._store, self._settings = store, settings

    async def answer(self, request: Request) -> Response | None:
        """Return the response, or None where the path is not that of a resource.

        Raises:
            errors.ApiError: 404, the resource is not served; 405, its method or subresource is not offered.
                The message names a replacement, if there is one.
        """
        resource = paths.split(request.scope["raw_path"].decode("latin-1"))
        if resource is None:
            return None
        review_kind = _review_kind(resource)
        if review_kind is not None:
            return await self._review(request, review_kind)
        kind = empty_kinds.find(resource.group, resource.version, resource.plural)
        if kind is not None and resource.subresource is None:
            return self._empty_list(request, kind, resource)
        raise not_offered.refusal(self._store.kinds, resource)

    async def _review(self, request: Request, kind: Kind) -> Response:
        if request.method != "POST":
            raise status_errors.method_not_allowed()
        asgi = AsgiRequest(request.scope, request.receive)
        body = bodies.require_object(await asgi.value(self._settings.max_body_bytes, kind.kind))
        served = api_groups.served_kinds(self._store.kinds)
        return _json(orjson.dumps(access_reviews.answer(served, kind, body)), 201)

    def _empty_list(self, request: Request, kind: Kind, resource: ResourcePath) -> Response:
        query = request.query_params
        if request.method not in ("GET", "HEAD") or queries.watches(query):
            raise not_offered.empty_kind_refusal(kind)
        command = request.headers.get(COMMAND_HEADER, "")
        if kind is empty_kinds.REPLICA_SET and command.startswith("kubectl rollout"):
            # An empty list would read as a Deployment without a history.
            raise status_errors.method_not_allowed(not_offered.ROLLOUT_HISTORY)
        if resource.name is not None:
            raise status_errors.not_found(kind, resource.name)
        accepted = queries.accepted(request.headers.get("accept", ""))
        include = queries.included_object(query)
        no_objects = pages.ListPage([])
        return _json(
            rendering.listing(
                self._store.kinds,
                kind,
                no_objects,
                self._store.version,
                accepted,
                now=clock.now(),
                include=include,
            )
        )


def _review_kind(resource: ResourcePath) -> Kind | None:
    """Return the kind of review that a POST to this path creates, or None for another path."""
    if resource.name is not None:
        return None
    wanted = (resource.group, resource.version, resource.plural)
    return next((k for k in api_groups.REVIEWS if (k.group, k.version, k.plural) == wanted), None)


def _json(body: bytes, code: int = 200) -> Response:
    return Response(body, code, media_type="application/json")
