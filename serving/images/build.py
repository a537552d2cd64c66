"""`capture`: a directory of trained files becomes an image in the model store, in one pass over its bytes.

Memory does not grow with the files: each chunk is hashed twice (as part of its file and of its layer; the
second on a thread, hashlib releases the lock) and written twice (blob and tree).
"""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from serving import errors
from serving.images import disk, layers, manifest, oci, source
from serving.images.oci import File
from serving.images.staging import Staging
from serving.images.store import ModelStore

__all__ = ["Built", "File", "capture"]

_CHUNK = 4 * 1024 * 1024
"""Bytes read at a time; two are alive at once. Larger chunks were not faster."""
MANIFEST_FILE = "slipway.json"


@dataclass(frozen=True)
class Built:
    """What a capture produced; all of it follows from the files, but for `image` and `lineage`."""

    digest: str
    image: str
    size: int
    files: tuple[File, ...]
    framework: str
    metrics: Mapping[str, float]
    source_revision: str
    modelpack: str
    """Digest of the ModelPack manifest over the same blobs."""
    lineage: str
    """Digest of the document that says where the files came from; it refers to the image."""


def capture(
    path: Path,
    store: ModelStore,
    *,
    repository: str,
    lineage: Mapping[str, str],
    framework: str = "",
    within: Path | None = None,
) -> Built:
    """Put the files below `path` into the store as an image. The same files give the same digest; again is a no-op.

    Args:
        path: an absolute directory.
        store: where to.
        repository: the image's name without tag or digest.
        lineage: who made the files; stored beside the image, never in it.
        framework: what the ModelVersion says; must agree with `slipway.json` where both say one.
        within: no component of `path` below this directory may be a link (give the volume's root for a Job's output).

    Raises:
        errors.Permanent: `EmptyOutput`, `InvalidOutput`, `InvalidManifest`, `TooManyFiles`.
        errors.Temporary: `OutputStillChanging`, `DiskFull`.
    """
    with source.opened(path, within) as root, store.staging() as staging:
        seen = source.walk(root)
        if not set(seen) - {MANIFEST_FILE}:
            raise errors.Permanent("EmptyOutput", f"{path}: no files were written there")
        output = _read_manifest(root, seen, framework)
        with ThreadPoolExecutor(1) as hasher:
            plan = layers.plan(layers.Entry(name, found.size) for name, found in seen.items())
            built = [_Writer(root, seen, staging, hasher).layer(layer) for layer in plan]
        _check_unchanged(root, seen)
        files = tuple(sorted((f for layer in built for f in layer.files), key=lambda f: f.path))
        documents = oci.documents(built, output)
        digest = staging.add(documents.image)
        image = f"{repository}@{digest}"
        modelpack, about = _stage_documents(staging, documents, repository, lineage)
        store.commit(staging, digest, {file.path: file.digest for file in files})
    return Built(
        digest=digest,
        image=image,
        size=sum(file.size for file in files),
        files=files,
        framework=output.framework or framework,
        metrics=output.metrics,
        source_revision=output.source_revision,
        modelpack=modelpack,
        lineage=about,
    )


def _read_manifest(root: int, seen: Mapping[str, source.Seen], framework: str) -> manifest.OutputManifest:
    if MANIFEST_FILE not in seen:
        return manifest.OutputManifest()
    with source.reading(root, MANIFEST_FILE, seen[MANIFEST_FILE]) as file:
        output = manifest.parse(file.read(manifest.MAX_BYTES + 1))
    if framework and output.framework and framework != output.framework:
        raise errors.Permanent(
            "InvalidManifest",
            f"slipway.json: framework: must be the ModelVersion's {framework!r}, got {output.framework!r}",
        )
    return output


def _stage_documents(
    staging: Staging, documents: oci.Documents, repository: str, facts: Mapping[str, str]
) -> tuple[str, str]:
    staging.add(documents.config)
    staging.add(documents.modelpack_config)
    staging.add(oci.EMPTY)
    about, blob = oci.lineage(documents.image, repository, facts)
    staging.add(blob)
    return staging.add(documents.modelpack), staging.add(about)


def _check_unchanged(root: int, seen: Mapping[str, source.Seen]) -> None:
    now = source.walk(root)
    for path in sorted(now.keys() | seen.keys()):
        if now.get(path) != seen.get(path):
            raise source.still_changing(path)


class _Writer:
    """Writes the files of the tree, and hashes each byte as part of its file and of its layer from one reading."""

    def __init__(
        self, root: int, seen: Mapping[str, source.Seen], staging: Staging, hasher: ThreadPoolExecutor
    ) -> None:
        self._root = root
        self._seen = seen
        self._staging = staging
        self._hasher = hasher

    def layer(self, layer: layers.Layer) -> oci.BuiltLayer:
        tar = hashlib.sha256()
        size = len(layers.TRAILER)
        files: list[File] = []
        for header, entry in layers.entries(layer):
            tar.update(header)
            size += len(header)
            if entry is not None:
                files.append(File(entry.path, self._file(entry, tar), entry.size))
                tar.update(layers.padding(entry.size))
                size += entry.size + len(layers.padding(entry.size))
        tar.update(layers.TRAILER)
        return oci.BuiltLayer(f"sha256:{tar.hexdigest()}", size, tuple(files))

    def _file(self, entry: layers.Entry, tar: "hashlib._Hash") -> str:
        own = hashlib.sha256()
        left = entry.size
        with (
            source.reading(self._root, entry.path, self._seen[entry.path]) as file,
            self._staging.file_path(entry.path).open("xb", buffering=0) as copy,
        ):
            while left:
                chunk = file.read(min(_CHUNK, left))
                if not chunk:
                    raise source.still_changing(entry.path)
                left -= len(chunk)
                hashed = self._hasher.submit(tar.update, chunk)
                own.update(chunk)
                disk.put(copy, chunk)
                hashed.result()
            os.fsync(copy.fileno())
        return f"sha256:{own.hexdigest()}"
