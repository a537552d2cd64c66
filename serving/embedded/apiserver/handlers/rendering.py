"""Serializes objects for responses: as objects, as a Table, or as metadata alone. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from serving.embedded.apiserver.requests.queries import Accepted
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage.history import ObjectVersion
from serving.embedded.apiserver.storage.pages import ListPage
from serving.embedded.apiserver.tables import tables
from serving.objects import Object
from serving.resources.kinds import Kind

Include = str
"""The part of an object that each row of a Table has: `None`, `Metadata` or `Object`."""
_METADATA_FORMS = ("PartialObjectMetadata", "PartialObjectMetadataList")
"""Forms of metadata alone; each is accepted for an object and for a list."""


def entry(
    stored_kinds: StoredKinds,
    kind: Kind,
    stored: ObjectVersion,
    accepted: Accepted,
    *,
    now: datetime,
    include: Include,
) -> bytes:
    """Serialize one stored object, in the form that the client accepts."""
    if accepted.form == "Object":
        return stored.body  # serialized once for all readers
    return single(stored_kinds, kind, stored.object, accepted, now=now, include=include)


def single(
    stored_kinds: StoredKinds, kind: Kind, obj: Object, accepted: Accepted, *, now: datetime, include: Include
) -> bytes:
    """Serialize an object that may not be stored, such as the result of a dry run."""
    if accepted.form == "Table":
        version = obj["metadata"].get("resourceVersion", "")
        rows = _table(
            stored_kinds, kind, [obj], accepted, now=now, include=include, version=version, token=""
        )
        return orjson.dumps(rows)
    if accepted.form in _METADATA_FORMS:
        return orjson.dumps(_partial(obj, accepted.version))
    return orjson.dumps(obj)


def listing(
    stored_kinds: StoredKinds,
    kind: Kind,
    page: ListPage,
    version: int,
    accepted: Accepted,
    *,
    now: datetime,
    include: Include,
) -> bytes:
    """Serialize one page of a list as of the resourceVersion `version`."""
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    objects = [stored.object for stored in page.entries]
    if accepted.form == "Table":
        table = _table(
            stored_kinds,
            kind,
            objects,
            accepted,
            now=now,
            include=include,
            version=str(version),
            token=page.token,
        )
        table["metadata"] = {**table.get("metadata", {}), **meta}
        return orjson.dumps(table)
    if accepted.form in _METADATA_FORMS:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{accepted.version}"}
        items = [_partial(obj, accepted.version) for obj in objects]
        return orjson.dumps({**head, "metadata": meta, "items": items})
    return _list_of_objects(kind, meta, page.entries)


def _list_of_objects(kind: Kind, meta: dict[str, Any], entries: Sequence[ObjectVersion]) -> bytes:
    """Serialize a list by joining the bytes of its objects, none of which is serialized again."""
    without_items = orjson.dumps(
        {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta}
    )
    items = b",".join(stored.body for stored in entries)
    return b'%b,"items":[%b]}' % (without_items.removesuffix(b"}"), items)


def _partial(obj: Object, version: str) -> Object:
    """Return the object's metadata alone; `version` is that of the API group meta.k8s.io."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def _table(
    stored_kinds: StoredKinds,
    kind: Kind,
    objects: list[Object],
    accepted: Accepted,
    *,
    now: datetime,
    include: Include,
    version: str,
    token: str,
) -> dict[str, Any]:
    table = tables.table(
        stored_kinds,
        kind,
        objects,
        now=now,
        include_object=include,
        resource_version=version,
        continue_=token,
    )
    table["apiVersion"] = f"meta.k8s.io/{accepted.version}"
    return table
