"""The handlers of kinds: from an HTTP request to a read or a write, and its response."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.handlers import lists, rendering
from serving.embedded.apiserver.pods import logs
from serving.embedded.apiserver.requests import bodies, queries
from serving.embedded.apiserver.requests.asgi import AsgiRequest, JsonResponse
from serving.embedded.apiserver.requests.paths import Address
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage import pages
from serving.embedded.apiserver.storage.history import ObjectKey, ObjectVersion
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.watches import Hub, WatchResponse
from serving.embedded.apiserver.storage.writer import ObjectWriter, WriteResult
from serving.embedded.apiserver.writes import scale
from serving.embedded.apiserver.writes.write_path import WriteOptions
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import patch_types
from serving.settings import ApiSettings

DELETE_OPTIONS = ("propagationPolicy", "orphanDependents", "gracePeriodSeconds")
"""Members of metav1.DeleteOptions that may also be parameters of the query."""


class ObjectHandlers:
    """Handles requests for collections, objects and subresources."""

    def __init__(self, writer: ObjectWriter, hub: Hub, settings: ApiSettings, data_dir: DataDir) -> None:
        self._writer, self._hub = writer, hub
        self._settings, self._data_dir = settings, data_dir
        self._objects = {
            "GET": self._get,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self._collections = {"GET": self._list, "POST": self._post, "DELETE": self._delete_all}

    @property
    def _store(self) -> ObjectStore:
        return self._writer.store

    async def answer(self, request: AsgiRequest, address: Address) -> ASGIApp:
        """Return the response to a request.

        Raises:
            errors.ApiError: the request is refused.
        """
        table = self._collections if address.name is None else self._objects
        handler = table.get(request.method)
        needs_namespace = address.kind.namespaced and request.method == "POST"
        deletes_subresource = address.subresource is not None and request.method == "DELETE"
        writes_log = address.subresource == "log" and request.method != "GET"
        if (
            handler is None
            or deletes_subresource
            or writes_log
            or (needs_namespace and not address.namespace)
        ):
            raise status_errors.method_not_allowed()
        return await handler(request, address)

    async def _list(self, request: AsgiRequest, address: Address) -> ASGIApp:
        query, accepted = request.query, queries.accepted(request.headers.get("accept", ""))
        if queries.watches(query):
            return self._watch(request, address, accepted)
        page, version = lists.page(self._store, address, query, self._settings.page_limit)
        body = rendering.listing(
            self._store.kinds,
            address.kind,
            page,
            version,
            accepted,
            now=clock.now(),
            include=queries.included_object(query),
        )
        return JsonResponse(body)

    def _watch(self, request: AsgiRequest, address: Address, accepted: queries.Accepted) -> ASGIApp:
        watch = lists.watch(self._store, address, request.query, self._settings.watch_seconds)
        include = queries.included_object(request.query)

        def render(entry: ObjectVersion) -> bytes:
            return rendering.entry(
                self._store.kinds, address.kind, entry, accepted, now=clock.now(), include=include
            )

        return WatchResponse(self._store, self._hub, self._settings, watch, render)

    async def _post(self, request: AsgiRequest, address: Address) -> ASGIApp:
        form = _response_form(request)
        options = _write_options(request, address)
        body = await self._object(request, address)
        result = await self._writer.create(address.kind, address.namespace, body, options)
        return _write_response(self._store.kinds, address, result, form)

    async def _get(self, request: AsgiRequest, address: Address) -> ASGIApp:
        accepted = queries.accepted(request.headers.get("accept", ""))
        entry = self._store.get(address.kind, _key(address))
        if entry is None:
            raise status_errors.not_found(address.kind, address.name or "")
        if address.subresource == "log":
            return self._log(request, address, entry.object)
        if address.subresource == "scale":
            return JsonResponse(orjson.dumps(scale.to_scale(address.kind, entry.object)))
        include = queries.included_object(request.query)
        return JsonResponse(
            rendering.entry(
                self._store.kinds, address.kind, entry, accepted, now=clock.now(), include=include
            )
        )

    async def _put(self, request: AsgiRequest, address: Address) -> ASGIApp:
        form = _response_form(request)
        options = _write_options(request, address)
        body = await self._object(request, address)
        result = await self._writer.update(address.kind, _key(address), body, options)
        return _write_response(self._store.kinds, address, result, form)

    async def _patch(self, request: AsgiRequest, address: Address) -> ASGIApp:
        form = _response_form(request)
        media = bodies.media_type(request.headers.get("content-type", ""))
        if media not in patch_types.PATCHES:
            raise bodies.unsupported(media, patch_types.PATCHES)
        options = _write_options(request, address, applies=media == patch_types.APPLY_PATCH)
        patch = await request.value(self._settings.max_body_bytes)
        key = _key(address)
        if media == patch_types.APPLY_PATCH:
            body = bodies.require_kind(bodies.require_object(patch))
            result = await self._writer.apply(address.kind, key, body, options)
        else:
            result = await self._writer.patch(address.kind, key, patch, media, options)
        return _write_response(self._store.kinds, address, result, form)

    async def _delete(self, request: AsgiRequest, address: Address) -> ASGIApp:
        queries.accepted(request.headers.get("accept", ""))  # a 406 before anything is deleted
        options, deletion = await self._delete_options(request, address)
        result = await self._writer.delete(address.kind, _key(address), deletion, options)
        if result.removed and address.kind != kinds.POD:  # as kube-apiserver: of a Pod, the Pod itself
            meta = result.object["metadata"]
            return JsonResponse(
                orjson.dumps(status_errors.success(address.kind, meta["name"], meta.get("uid", "")))
            )
        return JsonResponse(result.body or orjson.dumps(result.object))

    async def _delete_all(self, request: AsgiRequest, address: Address) -> ASGIApp:
        all_namespaces = address.kind.namespaced and address.namespace is None
        if all_namespaces or "deletecollection" not in api_groups.verbs(address.kind):
            raise status_errors.method_not_allowed()
        options, deletion = await self._delete_options(request, address)
        entries = lists.select(self._store, address, request.query)
        await self._writer.delete_all(address.kind, (key for key, _ in entries), deletion, options)
        return JsonResponse(
            rendering.listing(
                self._store.kinds,
                address.kind,
                pages.ListPage([entry for _, entry in entries]),
                self._store.version,
                queries.Accepted(),
                now=clock.now(),
                include="Metadata",
            )
        )

    async def _delete_options(self, request: AsgiRequest, address: Address) -> tuple[WriteOptions, Object]:
        """Return the options of the write, and metav1.DeleteOptions: the body's, completed from the query."""
        query, options = request.query, _write_options(request, address)
        raw = await request.body(self._settings.max_body_bytes)
        deletion: Object = {}
        if raw.strip():
            deletion = bodies.require_object(await request.parsed(raw, "DeleteOptions"))
        for name in DELETE_OPTIONS:
            if query.get(name, "") and name not in deletion:
                deletion[name] = _delete_option(query, name)
        if deletion.get("dryRun") not in (None, [], ["All"]):
            raise queries.bad("dryRun", str(deletion["dryRun"]), "supported values: All")
        return replace(options, dry_run=options.dry_run or bool(deletion.get("dryRun"))), deletion

    def _log(self, request: AsgiRequest, address: Address, pod: Object) -> ASGIApp:
        """Return the log of a container of this Pod; with `follow` the response ends with the run."""
        options = logs.LogOptions(request.query, clock.now())
        name = logs.container_name(pod, options)
        path, file = logs.open_log(self._data_dir, pod, name, options)
        uid, key = pod["metadata"]["uid"], _key(address)
        run = path.stem  # the file of the n-th run is n.log

        def is_over() -> bool:
            """Whether nothing more is written to this run's log, or the server stops."""
            if self._hub.stopping or options.previous:
                return True
            entry = self._store.get(kinds.POD, key)
            if entry is None or entry.object["metadata"]["uid"] != uid:
                return True
            try:
                latest = logs.locate(self._data_dir, entry.object, name, previous=False)
            except errors.ApiError:
                return True  # the agent removes the files of a deleted Pod before the Pod
            return latest.stem != run or logs.has_ended(entry.object, name)

        return StreamingResponse(
            logs.read(path, file, options, is_over), media_type="text/plain; charset=utf-8"
        )

    async def _object(self, request: AsgiRequest, address: Address) -> Object:
        """Return the object in the body.

        Only one of a built-in kind may be in protobuf, and only a custom resource must have apiVersion and
        kind, as on a cluster.
        """
        is_builtin = address.kind in kinds.BUILTIN
        protobuf_kind = address.kind.kind if is_builtin and address.subresource != "scale" else ""
        body = bodies.require_object(await request.value(self._settings.max_body_bytes, protobuf_kind))
        return body if is_builtin else bodies.require_kind(body)


class _ResponseForm(NamedTuple):
    """The form of the object in the response to a write."""

    accepted: queries.Accepted
    include: str
    """The part of the object in the row of a Table."""


def _response_form(request: AsgiRequest) -> _ResponseForm:
    """Return the form that the client asks for; called before anything is written.

    Raises:
        errors.ApiError: 400 or 406, the form is unknown.
    """
    accepted = queries.accepted(request.headers.get("accept", ""))
    return _ResponseForm(accepted, queries.included_object(request.query))


def _write_response(
    stored_kinds: StoredKinds, address: Address, result: WriteResult, form: _ResponseForm
) -> JsonResponse:
    if address.subresource == "scale":
        body = orjson.dumps(scale.to_scale(address.kind, result.object))
    elif form.accepted.form == "Object" and result.body is not None:
        body = result.body
    else:
        body = rendering.single(
            stored_kinds,
            address.kind,
            result.object,
            form.accepted,
            now=clock.now(),
            include=form.include,
        )
    return JsonResponse(body, 201 if result.created else 200, result.warnings)


def _key(address: Address) -> ObjectKey:
    return ObjectKey(address.namespace or "", address.name or "")


def _write_options(request: AsgiRequest, address: Address, *, applies: bool = False) -> WriteOptions:
    """Return the options in the query; `applies` is whether the write is a server-side apply."""
    query = request.query
    if applies and not query.get("fieldManager", ""):
        cause = status_errors.required("fieldManager", "is required for apply patch")
        message = f"PatchOptions.meta.k8s.io is invalid: {cause.field}: {cause.message}"
        raise errors.Invalid(422, "Invalid", message, (cause,))
    force = queries.flag(query, "force")
    if force and not applies:
        raise queries.bad("force", query["force"], "may not be specified for non-apply patch")
    return WriteOptions(
        manager=queries.manager(query, request.headers.get("user-agent", "")),
        field_validation=queries.field_validation(query),
        subresource=address.subresource,
        force=force,
        dry_run=queries.dry_run(query),
    )


def _delete_option(query: Mapping[str, str], name: str) -> Any:
    if name == "gracePeriodSeconds":
        return queries.number(query, name)
    if name == "orphanDependents":
        return queries.flag(query, name)
    return query[name]
