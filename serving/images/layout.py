"""An image of the store as an OCI image layout on disk, for the tools that read one.

OCI image-spec 1.1, image-layout.md. The store itself is none: it does not keep layers.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from serving import errors
from serving.images import disk, image, oci

_NAME = "org.opencontainers.image.ref.name"


def write(
    directory: Path,
    manifest: bytes,
    referrers: Iterable[tuple[dict[str, Any], bytes]],
    read_blob: Callable[[str], Iterator[bytes]],
    name: str,
) -> None:
    """Write the layout; its index comes last.

    Args:
        directory: empty, or made.
        manifest: the image's.
        referrers: descriptors and documents that refer to it; they get index entries without a name.
        read_blob: gives the chunks of every blob that these documents name.
        name: by which tools find the image in the index.

    Raises:
        errors.UserError: the directory is not empty.
        errors.Temporary: `DiskFull`.
    """
    blobs = directory / "blobs" / "sha256"
    with disk.disk_full():
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise errors.UserError(f"{directory}: must be an empty directory, or not exist")
        blobs.mkdir(parents=True)
        entries = [oci.descriptor(oci.MANIFEST_TYPE, manifest) | {"annotations": {_NAME: name}}]
        documents = {entries[0]["digest"]: manifest}
        needed = set(image.parse(manifest).blobs)
        for described, document in referrers:
            entries.append(described)
            documents[described["digest"]] = document
            needed |= image.referred(document)
        for digest, document in documents.items():
            disk.write_synced(blobs / image.hexadecimal(digest), document)
        for digest in sorted(needed - documents.keys()):
            with (blobs / image.hexadecimal(digest)).open("xb", buffering=0) as file:
                for chunk in read_blob(digest):
                    disk.put(file, chunk)
        index = {"schemaVersion": 2, "mediaType": oci.INDEX_TYPE, "manifests": entries}
        disk.write_synced(directory / "oci-layout", oci.encode({"imageLayoutVersion": "1.0.0"}))
        disk.write_synced(directory / "index.json", oci.encode(index))
