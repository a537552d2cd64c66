"""The referrers of an image, by the referrers API or, in registries without it, by the fallback tag.

Distribution-spec, "Referrers Tag Schema": an index at the tag `sha256-<hex>` that each writer reads, changes
and writes. There is no lock, so a writer checks afterwards whether its entry is still there, and writes again
if not.
"""

import asyncio
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from serving import errors
from serving.images.documents import oci
from serving.images.registry import descriptors, manifests, responses
from serving.images.registry.client import Registry, RegistryRequest, refused
from serving.images.registry.reference import Reference

_log = logging.getLogger(__name__)

_WITHOUT_API = frozenset({400, 404, 405})
"""404 by the specification; older registries answer an unknown path in other ways."""
_MAX_PAGES = 100
"""Pages after which no further one is read: a registry can send empty ones for ever."""
_MAX_LISTED_BYTES = oci.MAX_MANIFEST
"""Bytes of pages after which no further page is read, as a registry can send any number: about 10,000
referrers.
"""
UNREADABLE = frozenset({"InvalidImage", "ImageNotFound", "RegistryRefused", "DigestMismatch"})
"""Reasons of a document that is malformed or incomplete."""
_WRITES = 5
"""Most attempts to add an entry while others write the same index."""


async def find(registry: Registry, target: Reference, digest: str) -> tuple[Mapping[str, Any], ...]:
    """Return the descriptors of the manifests that refer to a digest.

    Raises:
        errors.Temporary: `RegistryUnavailable`.
        errors.Permanent: `Unauthorized`, `RegistryRefused`.
        Without the referrers API also those of `manifests.find`.
    """
    request = RegistryRequest("GET", target, f"referrers/{digest}", headers={"Accept": oci.INDEX_TYPE})
    entries: list[Mapping[str, Any]] = []
    listed_bytes = 0
    for page in range(1, _MAX_PAGES + 1):
        response = await registry.send(request)
        if response.status in _WITHOUT_API:
            return descriptors.entries_of(await _index_at_tag(registry, target, digest))
        if response.status != 200:
            raise refused(request, response)
        entries += descriptors.entries_of(responses.json_object(response.body))
        listed_bytes += len(response.body)
        if response.next_page is None:
            break
        if listed_bytes >= _MAX_LISTED_BYTES or page == _MAX_PAGES:
            _log.warning("%s: only the first %d referrers are read", target.at(digest), len(entries))
            break
        request = RegistryRequest("GET", target, url=response.next_page, headers={"Accept": oci.INDEX_TYPE})
    return tuple(entries)


@contextmanager
def unreadable_ignored(document: Reference) -> Iterator[None]:
    """Log and ignore a malformed or incomplete document about an image: whoever may push can add one."""
    try:
        yield
    except (errors.Permanent, errors.Temporary) as error:
        if error.reason not in UNREADABLE:
            raise
        _log.warning("%s: ignored: %s", document, error)


async def add(registry: Registry, target: Reference, subject: str, manifest: bytes) -> None:
    """Store a manifest that refers to `subject`, and list it among the referrers.

    Args:
        registry: the client.
        target: the repository, which has the blobs.
        subject: digest of the manifest's subject.
        manifest: the exact bytes.

    Raises:
        errors.Temporary: `ReferrersContended`, others wrote at the same time at each try.
        errors.Temporary, errors.Permanent: those of `manifests.find` and `manifests.put`.
    """
    digest = oci.digest_of(manifest)
    is_listed_by_registry = await manifests.put(registry, target.at(digest), manifest)
    if is_listed_by_registry:
        return
    entry = oci.referrer(responses.json_object(manifest), manifest)
    for _ in range(_WRITES):
        index = await _index_at_tag(registry, target, subject)
        if any(existing.get("digest") == digest for existing in descriptors.entries_of(index)):
            return
        await manifests.put(
            registry, target.tagged(fallback_tag(subject)), oci.encode(_with_entry(index, entry))
        )
        await asyncio.sleep(random.uniform(0.02, 0.1))  # noqa: S311 desynchronises writers; no secret
    raise errors.Temporary("ReferrersContended", f"others keep writing the referrers of {target.at(subject)}")


def fallback_tag(digest: str) -> str:
    """Return the tag of the index of referrers in registries without the referrers API."""
    return digest.replace(":", "-")


async def _index_at_tag(registry: Registry, target: Reference, digest: str) -> Mapping[str, Any]:
    """Return the index at the fallback tag of `digest`, {} without one."""
    index = await manifests.find(registry, target.tagged(fallback_tag(digest)))
    return index.document if index else {}


def _with_entry(index: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the index with one more entry, and with all that other tools have written into it.

    A document that is no index is replaced.
    """
    listed = index.get("manifests")
    others = index if isinstance(listed, list) else {"manifests": []}
    own = {"schemaVersion": 2, "mediaType": oci.INDEX_TYPE, "manifests": [*others["manifests"], entry]}
    return {**others, **own}
