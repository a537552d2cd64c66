"""Manifests of a repository: the exact bytes, and nothing whose digest is not what it should be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.images.documents import oci
from serving.images.registry import descriptors, responses
from serving.images.registry.client import Call, Registry, refused
from serving.images.registry.reference import Reference

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
INDEXES = frozenset({oci.INDEX_TYPE, DOCKER_INDEX})
_ACCEPT = f"{oci.MANIFEST_TYPE}, {oci.INDEX_TYPE}, {DOCKER_MANIFEST}, {DOCKER_INDEX}"
_LINUX = {"os": "linux", "architecture": "amd64"}


@dataclass(frozen=True)
class Fetched:
    """A manifest as it lies in the registry."""

    digest: str
    media_type: str
    data: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The parsed JSON object."""
        return responses.json_object(self.data)


async def find(registry: Registry, reference: Reference) -> Fetched | None:
    """Return a manifest by digest or tag, or None where there is none.

    Raises:
        errors.Temporary: `DigestMismatch`; `RegistryUnavailable`.
        errors.Permanent: `Unauthorized`; `InvalidImage`, not a JSON object or too long.
    """
    name = reference.digest or reference.tag or "latest"
    call = Call("GET", reference, f"manifests/{name}", headers={"Accept": _ACCEPT})
    answer = await registry.ask(call)
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise refused(call, answer)
    digest = oci.digest_of(answer.body)
    promised = reference.digest or answer.headers.get("Docker-Content-Digest", digest)
    if digest != promised:
        raise errors.Temporary(
            "DigestMismatch",
            f"what {reference.host} sent for {reference} has the digest {digest}, not {promised}",
        )
    document = responses.json_object(answer.body)
    if not document:
        raise errors.Permanent("InvalidImage", f"{reference} is not a manifest: no JSON object")
    written = document.get("mediaType") or answer.headers.get("Content-Type", "")
    return Fetched(digest, str(written).partition(";")[0].strip(), answer.body)


async def get(registry: Registry, reference: Reference) -> Fetched:
    """Return a manifest that must be there.

    Raises:
        errors.Permanent: `ImageNotFound`, and what `find` raises.
    """
    found = await find(registry, reference)
    if found is None:
        raise errors.Permanent("ImageNotFound", f"{reference} is not in the registry")
    return found


async def get_image(registry: Registry, reference: Reference) -> Fetched:
    """Return the manifest of one image; of an index, the entry for linux/amd64, or the only one.

    Raises:
        errors.Permanent: `InvalidImage`, neither an image nor an index with a fitting entry; and what `get`
            raises.
    """
    found = await get(registry, reference)
    if found.media_type in INDEXES:
        found = await get(registry, reference.at(_choose(reference, found.document)))
    if found.media_type not in {oci.MANIFEST_TYPE, DOCKER_MANIFEST}:
        raise errors.Permanent("InvalidImage", f"{reference} is not an image but {found.media_type!r}")
    return found


def _choose(reference: Reference, index: Mapping[str, Any]) -> str:
    entries = [entry for entry in descriptors.entries_of(index) if not entry.get("artifactType")]
    platforms = [(entry, descriptors.mapping(entry, "platform")) for entry in entries]
    # BuildKit lists attestations beside images (moby/buildkit, docs/attestations/attestation-storage.md).
    images = [(entry, platform) for entry, platform in platforms if platform.get("os") != "unknown"]
    fitting = [pair for pair in images if _LINUX.items() <= pair[1].items()]
    if not fitting and len(images) == 1:
        fitting = images
    if not fitting:
        raise errors.Permanent("InvalidImage", f"{reference} is an index without an entry for linux/amd64")
    return str(fitting[0][0]["digest"])


async def put(registry: Registry, target: Reference, data: bytes) -> bool:
    """Store a manifest or an index under the target's digest or tag, as the media type that it names.

    Returns:
        Whether the registry keeps the list of what refers to a subject by itself (`OCI-Subject`).

    Raises:
        errors.Permanent: `RegistryRefused`, `Unauthorized`.
        errors.Temporary: `DigestMismatch`, it got other bytes; `RegistryUnavailable`; `BlobsMissing`, they
            went away.
    """
    if len(data) > oci.MAX_MANIFEST:
        raise errors.Permanent(
            "InvalidImage", f"the manifest of {target} has more than {oci.MAX_MANIFEST} bytes"
        )
    name = target.digest or target.tag
    media_type = str(responses.json_object(data).get("mediaType") or oci.MANIFEST_TYPE)
    call = Call(
        "PUT", target, f"manifests/{name}", push=True, headers={"Content-Type": media_type}, body=(data,)
    )
    answer = await registry.ask(call)
    if answer.status in {400, 404} and "BLOB_UNKNOWN" in responses.explain(answer.body):
        raise errors.Temporary("BlobsMissing", f"{target}: {responses.explain(answer.body)}")
    if answer.status not in {200, 201}:
        raise refused(call, answer)
    digest = oci.digest_of(data)
    if (said := answer.headers.get("Docker-Content-Digest", digest)) != digest:
        raise errors.Temporary("DigestMismatch", f"{target.host} stored {said} where {digest} was sent")
    return "OCI-Subject" in answer.headers
