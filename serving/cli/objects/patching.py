"""A change of an object that is made of what is stored, and made again where that moved in between."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from serving import errors
from serving.objects import Object

if TYPE_CHECKING:
    from serving.kube import Kube


JSON_PATCH = "application/json-patch+json"
RETRY_SECONDS = 0.05
ATTEMPTS = 5


async def patched(
    kube: "Kube",
    path: str,
    operations: Callable[[Object], list[Object]],
    manager: str,
    query: Mapping[str, str] | None = None,
) -> Object:
    """Return the object at `path` with these operations done on what is stored then; with none, as it is.

    Args:
        kube: the API.
        path: of the object.
        operations: JSON patch operations for the stored object; it may refuse by raising.
        manager: the field manager whose fields these are.
        query: more of the request, `dryRun` for example.
    """
    for attempt in range(ATTEMPTS):
        obj = await kube.request("GET", path)
        changes = operations(obj)
        if not changes:
            return obj
        version = obj["metadata"]["resourceVersion"]
        body = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]
        asked = {"fieldManager": manager, **(query or {})}
        try:
            return await kube.request("PATCH", path, body=body, query=asked, content_type=JSON_PATCH)
        except errors.ApiError:
            moved = await kube.request("GET", path)
            if moved["metadata"]["resourceVersion"] == version or attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(RETRY_SECONDS)
    raise AssertionError
