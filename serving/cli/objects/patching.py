"""JSON patches computed from the stored object, and computed again where it has changed in the meantime."""

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
    """Patch the object at `path` and return it; without operations, return it unchanged.

    Args:
        kube: the API.
        path: of the object.
        operations: returns the JSON patch of the stored object; it may raise to refuse.
        manager: the field manager.
        query: further query parameters, `dryRun` for example.
    """
    for attempt in range(ATTEMPTS):
        obj = await kube.request("GET", path)
        changes = operations(obj)
        if not changes:
            return obj
        version = obj["metadata"]["resourceVersion"]
        body = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]
        parameters = {"fieldManager": manager, **(query or {})}
        try:
            return await kube.request("PATCH", path, body=body, query=parameters, content_type=JSON_PATCH)
        except errors.ApiError:
            current = await kube.request("GET", path)
            if current["metadata"]["resourceVersion"] == version or attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(RETRY_SECONDS)
    raise AssertionError
