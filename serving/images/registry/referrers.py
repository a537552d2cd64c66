"""What refers to an image: by the referrers API, or by the tag that stands in for it where a registry has
none.

Distribution-spec, "Referrers Tag Schema": an index at the tag `sha256-<hex>` that every writer reads, changes
and writes. Nobody locks it, so a writer looks afterwards whether its entry is still there, and writes again
if not.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from serving import errors
from serving.images.documents import oci
from serving.images.registry import descriptors, manifests, responses
from serving.images.registry.client import Call, Registry, refused
from serving.images.registry.reference import Reference

_WITHOUT_API = frozenset({400, 404, 405})
"""The specification has 404; older registries do not know the path, and say so in other ways."""
_MAX_PAGES = 100
_WRITES = 5
"""Tries to add an entry against other writers before somebody else has to."""


async def find(registry: Registry, target: Reference, digest: str) -> tuple[Mapping[str, Any], ...]:
    """Return the descriptors of all manifests that refer to a digest.

    Raises:
        errors.Temporary: `RegistryUnavailable`.
        errors.Permanent: `Unauthorized`.
    """
    call = Call("GET", target, f"referrers/{digest}", headers={"Accept": oci.INDEX_TYPE})
    found: list[Mapping[str, Any]] = []
    for _ in range(_MAX_PAGES):
        answer = await registry.ask(call)
        if answer.status in _WITHOUT_API:
            return await _at_tag(registry, target, digest)
        if answer.status != 200:
            raise refused(call, answer)
        found += descriptors.entries_of(responses.json_object(answer.body))
        if answer.next_page is None:
            break
        call = Call("GET", target, url=answer.next_page, headers={"Accept": oci.INDEX_TYPE})
    return tuple(found)


async def add(registry: Registry, target: Reference, subject: str, manifest: bytes) -> None:
    """Store a manifest that refers to `subject`, so that `find` finds it.

    Args:
        registry: the client.
        target: the repository; its blobs must be there.
        subject: digest that the manifest names as its subject.
        manifest: the exact bytes.

    Raises:
        errors.Temporary: `ReferrersContended`, others wrote at the same time again and again; what
            `manifests.put` raises.
    """
    digest = oci.digest_of(manifest)
    if await manifests.put(registry, target.at(digest), manifest):
        return
    entry = oci.referrer(responses.json_object(manifest), manifest)
    for _ in range(_WRITES):
        found = await _at_tag(registry, target, subject)
        if any(other.get("digest") == digest for other in found):
            return
        index = {"schemaVersion": 2, "mediaType": oci.INDEX_TYPE, "manifests": [*found, entry]}
        await manifests.put(registry, target.tagged(fallback_tag(subject)), oci.encode(index))
        await asyncio.sleep(random.uniform(0.02, 0.1))  # noqa: S311 writers that met part again; no secret
    raise errors.Temporary("ReferrersContended", f"others keep writing what refers to {target.at(subject)}")


def fallback_tag(digest: str) -> str:
    """Return the tag that stands in for the referrers API."""
    return digest.replace(":", "-")


async def _at_tag(registry: Registry, target: Reference, digest: str) -> tuple[Mapping[str, Any], ...]:
    found = await manifests.find(registry, target.tagged(fallback_tag(digest)))
    return descriptors.entries_of(found.document) if found else ()
