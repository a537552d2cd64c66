"""`capture`: a directory of trained files becomes an image in the model store, in one pass over its bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving import errors
from serving.images.capture import source
from serving.images.capture.packing import pack
from serving.images.documents import layers, oci, output_manifest
from serving.images.documents.oci import File
from serving.images.store.model_store import ModelStore
from serving.images.store.staging import Staging

__all__ = ["Built", "File", "capture"]

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
    compression: Literal["none", "zstd"] = "none",
) -> Built:
    """Put the files below `path` into the store as an image. The same files give the same digest; again is a no-op.

    Args:
        path: an absolute directory.
        store: where to.
        repository: the image's name without tag or digest.
        lineage: who made the files; stored beside the image, never in it.
        framework: what the ModelVersion says; must agree with `slipway.json` where both say one.
        within: no component of `path` below this directory may be a link (give the volume's root for a Job's output).
        compression: of the layers. Compressed ones are kept beside the tree, and may differ between versions of zstd.

    Raises:
        errors.Permanent: `EmptyOutput`, `InvalidOutput`, `InvalidManifest`, `TooManyFiles`.
        errors.Temporary: `OutputStillChanging`, `DiskFull`.
    """
    with source.opened(path, within) as root, store.staging() as staging:
        seen = source.walk(root)
        if not set(seen) - {MANIFEST_FILE}:
            raise errors.Permanent("EmptyOutput", f"{path}: no files were written there")
        output = _read_manifest(root, seen, framework)
        plan = layers.plan(layers.Entry(name, found.size) for name, found in seen.items())
        built = pack(root, seen, plan, staging, compression)
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


def _read_manifest(
    root: int, seen: Mapping[str, source.Seen], framework: str
) -> output_manifest.OutputManifest:
    if MANIFEST_FILE not in seen:
        return output_manifest.OutputManifest()
    with source.reading(root, MANIFEST_FILE, seen[MANIFEST_FILE]) as file:
        output = output_manifest.parse(file.read(output_manifest.MAX_BYTES + 1))
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
