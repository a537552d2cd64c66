"""Reads the descriptors in documents of a registry, whose content can be anything. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from serving import errors
from serving.images.documents.image import Blob

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def blob(descriptor: Any) -> Blob:
    """Return the blob that a descriptor names.

    Raises:
        errors.Permanent: `InvalidImage`; the message has the value.
    """
    fields = descriptor if isinstance(descriptor, dict) else {}
    digest, size = fields.get("digest"), fields.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
        raise errors.Permanent(
            "InvalidImage", f"a descriptor must have a sha256 digest and a size, got {str(descriptor)[:200]}"
        )
    return Blob(digest, size)


def blobs_of(document: Mapping[str, Any]) -> list[Blob]:
    """Return the blobs of a manifest: its config and its layers.

    Raises:
        errors.Permanent: `InvalidImage`.
    """
    return [blob(item) for item in (document.get("config"), *layers_of(document))]


def layers_of(document: Mapping[str, Any]) -> list[Any]:
    """Return the descriptors of a manifest's layers, not validated."""
    layers = document.get("layers")
    return layers if isinstance(layers, list) else []


def entries_of(index: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the descriptors of an index that have a sha256 digest."""
    listed = index.get("manifests")
    entries = listed if isinstance(listed, list) else []
    return tuple(entry for entry in entries if isinstance(entry, dict) and _has_digest(entry))


def _has_digest(entry: Mapping[str, Any]) -> bool:
    digest = entry.get("digest")
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None


def mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object in a field, or {} if it has none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}
