"""JSON patches computed from the stored object, and again if another writer has changed it meanwhile."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from serving import errors
from serving.objects import Object
from serving.resources.kubernetes.patch_types import JSON_PATCH

if TYPE_CHECKING:
    from serving.kube import Kube


RETRY_SECONDS = 0.05
ATTEMPTS = 5


async def patched(
    kube: "Kube",
    path: str,
    operations: Callable[[Object], list[Object]],
    manager: str,
    query: Mapping[str, str] | None = None,
) -> Object:
    """Patch the object at `path` and return it; if `operations` returns none, return it unchanged.

    Args:
        kube: the API.
        path: the URL path of the object.
        operations: computes the JSON patch from the stored object; it raises to refuse the patch.
        manager: the field manager.
        query: further query parameters, such as `dryRun`.

    Raises:
        errors.ApiError: the API rejects the patch, or the object has changed at each of `ATTEMPTS`.
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
            # A failed test looks like any rejected patch: only the version shows that the object has changed.
            current = await kube.request("GET", path)
            if current["metadata"]["resourceVersion"] == version or attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(RETRY_SECONDS)
    raise AssertionError
