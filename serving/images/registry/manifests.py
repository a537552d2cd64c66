"""Manifests of a repository, as exact bytes whose digests are checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.images.documents import oci
from serving.images.registry import descriptors, responses
from serving.images.registry.client import Registry, RegistryRequest, refused
from serving.images.registry.reference import Reference

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
INDEXES = frozenset({oci.INDEX_TYPE, DOCKER_INDEX})
"""Media types of lists of manifests, one for each platform."""
_ACCEPT = f"{oci.MANIFEST_TYPE}, {oci.INDEX_TYPE}, {DOCKER_MANIFEST}, {DOCKER_INDEX}"
_LINUX = {"os": "linux", "architecture": "amd64"}
"""The platform that `oci` writes into the configs of our images."""


@dataclass(frozen=True)
class StoredManifest:
    """A manifest as the registry has it."""

    digest: str
    media_type: str
    data: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The parsed JSON object."""
        return responses.json_object(self.data)


async def find(registry: Registry, reference: Reference) -> StoredManifest | None:
    """Return a manifest by digest or tag, or None if there is none.

    Raises:
        errors.Temporary: `DigestMismatch`; `RegistryUnavailable`.
        errors.Permanent: `Unauthorized`; `InvalidImage`, not a JSON object; `RegistryRefused`, too long or an
            unexpected status.
    """
    name = reference.digest or reference.tag or "latest"
    request = RegistryRequest("GET", reference, f"manifests/{name}", headers={"Accept": _ACCEPT})
    response = await registry.send(request)
    if response.status == 404:
        return None
    if response.status != 200:
        raise refused(request, response)
    digest = oci.digest_of(response.body)
    expected = reference.digest or response.headers.get("Docker-Content-Digest", digest)
    if digest != expected:
        raise errors.Temporary(
            "DigestMismatch",
            f"{reference.host} sent for {reference} a manifest with the digest {digest}, not {expected}",
        )
    document = responses.json_object(response.body)
    if not document:
        raise errors.Permanent("InvalidImage", f"{reference} is not a manifest: no JSON object")
    media_type = document.get("mediaType") or response.headers.get("Content-Type", "")
    return StoredManifest(digest, str(media_type).partition(";")[0].strip(), response.body)


async def get(registry: Registry, reference: Reference) -> StoredManifest:
    """Return a manifest that must exist.

    Raises:
        errors.Permanent: `ImageNotFound`, and the errors of `find`.
    """
    manifest = await find(registry, reference)
    if manifest is None:
        raise errors.Permanent("ImageNotFound", f"{reference} is not in the registry")
    return manifest


async def get_image(registry: Registry, reference: Reference) -> StoredManifest:
    """Return the manifest of an image; of an index, the entry for linux/amd64, or the only one.

    Raises:
        errors.Permanent: `InvalidImage`, neither an image nor an index with such an entry; and those of
            `get`.
    """
    manifest = await get(registry, reference)
    if manifest.media_type in INDEXES:
        manifest = await get(registry, reference.at(_choose(reference, manifest.document)))
    if manifest.media_type not in {oci.MANIFEST_TYPE, DOCKER_MANIFEST}:
        raise errors.Permanent("InvalidImage", f"{reference} is not an image but {manifest.media_type!r}")
    return manifest


def _choose(reference: Reference, index: Mapping[str, Any]) -> str:
    """Return the digest of the index's image for linux/amd64, or of its only image."""
    entries = [entry for entry in descriptors.entries_of(index) if not entry.get("artifactType")]
    # BuildKit lists attestations, of the os `unknown`, beside images (moby/buildkit,
    # docs/attestations/attestation-storage.md).
    images = [entry for entry in entries if _platform(entry).get("os") != "unknown"]
    matching = [entry for entry in images if _LINUX.items() <= _platform(entry).items()]
    if not matching and len(images) == 1:
        matching = images
    if not matching:
        raise errors.Permanent("InvalidImage", f"{reference} is an index without an entry for linux/amd64")
    return str(matching[0]["digest"])


def _platform(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return descriptors.mapping(entry, "platform")


async def put(registry: Registry, target: Reference, data: bytes) -> bool:
    """Store a manifest or an index under the target's digest or tag, with its own media type.

    Returns:
        Whether the registry itself lists the manifest as a referrer of its subject (`OCI-Subject`).

    Raises:
        errors.Permanent: `RegistryRefused`, `Unauthorized`; `InvalidImage`, the manifest is too long.
        errors.Temporary: `DigestMismatch`, the registry received other bytes; `RegistryUnavailable`;
            `BlobsMissing`, the registry has removed blobs that the manifest names.
    """
    if len(data) > oci.MAX_MANIFEST:
        raise errors.Permanent(
            "InvalidImage", f"the manifest of {target} has more than {oci.MAX_MANIFEST} bytes"
        )
    name = target.digest or target.tag
    media_type = str(responses.json_object(data).get("mediaType") or oci.MANIFEST_TYPE)
    request = RegistryRequest(
        "PUT", target, f"manifests/{name}", push=True, headers={"Content-Type": media_type}, body=(data,)
    )
    response = await registry.send(request)
    if response.status in {400, 404} and "BLOB_UNKNOWN" in responses.explain(response.body):
        raise errors.Temporary("BlobsMissing", f"{target}: {responses.explain(response.body)}")
    if response.status not in {200, 201}:
        raise refused(request, response)
    digest = oci.digest_of(data)
    if (stored := response.headers.get("Docker-Content-Digest", digest)) != digest:
        raise errors.Temporary("DigestMismatch", f"{target.host} stored {stored} instead of {digest}")
    return "OCI-Subject" in response.headers
