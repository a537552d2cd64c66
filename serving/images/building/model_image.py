"""Builds an image of a directory of trained files, in the model store, in one pass over the bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving import errors
from serving.images.building import source
from serving.images.building.packing import pack
from serving.images.documents import layers, oci, output_manifest
from serving.images.documents.oci import File
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.images.store.staging import Staging
from serving.resources import names

__all__ = ["Built", "File", "build_image"]


@dataclass(frozen=True)
class Built:
    """An image that was built and added to the model store."""

    digest: str
    """Digest of the image's manifest."""
    image: str
    """Reference `REPOSITORY@DIGEST`."""
    size: int
    """Bytes of all files."""
    files: tuple[File, ...]
    files_digest: str
    """Digest of `files.json`."""
    framework: str
    """Of `slipway.json`, else of the ModelVersion."""
    metrics: Mapping[str, float]
    source_revision: str
    modelpack_digest: str
    """Digest of the ModelPack manifest over the same blobs."""
    lineage_digest: str
    """Digest of the lineage document, which refers to the image."""


def build_image(
    path: Path,
    store: ModelStore,
    *,
    repository: str,
    lineage: Mapping[str, str],
    framework: str = "",
    trusted_root: Path | None = None,
    reader_uid: int | None = None,
    data_dir: Path | None = None,
    compression: Literal["none", "zstd"] = "none",
) -> Built:
    """Add the files below `path` to the store as an image. The same files give the same digest; a repeated
    build changes nothing in the store.

    Args:
        path: an absolute directory.
        store: gets the image.
        repository: the image's name without tag or digest.
        lineage: origin of the files; stored beside the image, never in it.
        framework: of the ModelVersion; must agree with `slipway.json` if both name one.
        trusted_root: no component of `path` below this directory may be a link: the volume's root for a Job's
            output.
        reader_uid: id of the user who must be able to read all files; None for no user.
        data_dir: the data directory; `path` must neither contain it nor be in it. None for none.
        compression: of the layers. Compressed layers are kept beside the tree, and may differ between
            versions of zstd.

    Raises:
        errors.Permanent: `EmptyOutput`, `InvalidOutput`, `InvalidManifest`, `TooManyFiles`.
        errors.Temporary: `OutputStillChanging`, `DiskFull`.
    """
    with (
        source.open_directory(path, trusted_root, reader_uid=reader_uid, data_dir=data_dir) as root,
        store.staging() as staging,
    ):
        stamps = _walk(path, root, reader_uid)
        disk.require_room(staging.path, sum(stamp.size for stamp in stamps.values()))
        output = _read_output_manifest(root, stamps, framework)
        plan = layers.plan(layers.LayerEntry(name, stamp.size) for name, stamp in stamps.items())
        built_layers = pack(root, stamps, plan, staging, compression)
        _check_unchanged(root, stamps, reader_uid)
        files = tuple(sorted((f for layer in built_layers for f in layer.files), key=lambda f: f.path))
        list_layer, blob = oci.file_list_layer(files)
        staging.add(blob)
        documents = oci.documents([*built_layers, list_layer], output)
        digest = staging.add(documents.image)
        modelpack_digest, lineage_digest = _stage_documents(staging, documents, repository, lineage)
        store.commit(staging, digest, files)
    return Built(
        digest=digest,
        image=f"{repository}@{digest}",
        size=sum(file.size for file in files),
        files=files,
        files_digest=list_layer.file_list,
        framework=output.framework or framework,
        metrics=output.metrics,
        source_revision=output.source_revision,
        modelpack_digest=modelpack_digest,
        lineage_digest=lineage_digest,
    )


def _walk(path: Path, root: int, reader_uid: int | None) -> dict[str, disk.FileStamp]:
    """Return the stamps of the files below the opened directory: at least one besides `slipway.json`.

    Raises:
        errors.Permanent: `EmptyOutput`, and the reasons of `source.walk`.
        errors.Temporary: `OutputStillChanging`.
    """
    stamps = source.walk(root, reader_uid)
    if not set(stamps) - {names.MANIFEST_FILE}:
        raise errors.Permanent("EmptyOutput", f"{path}: no files were written there")
    return stamps


def _read_output_manifest(
    root: int, stamps: Mapping[str, disk.FileStamp], framework: str
) -> output_manifest.OutputManifest:
    if names.MANIFEST_FILE not in stamps:
        return output_manifest.OutputManifest()
    with source.open_file(root, names.MANIFEST_FILE, stamps[names.MANIFEST_FILE]) as file:
        output = output_manifest.parse(file.read(output_manifest.MAX_BYTES + 1))
    if framework and output.framework and framework != output.framework:
        raise errors.Permanent(
            "InvalidManifest",
            f"{names.MANIFEST_FILE}: framework: must be the ModelVersion's {framework!r}, got"
            f" {output.framework!r}",
        )
    return output


def _stage_documents(
    staging: Staging, documents: oci.Documents, repository: str, lineage: Mapping[str, str]
) -> tuple[str, str]:
    """Stage the image's other documents; return the digests of (ModelPack manifest, lineage manifest)."""
    staging.add(documents.config)
    staging.add(documents.modelpack_config)
    staging.add(oci.EMPTY)
    manifest, blob = oci.lineage(documents.image, repository, lineage)
    staging.add(blob)
    return staging.add(documents.modelpack), staging.add(manifest)


def _check_unchanged(root: int, stamps: Mapping[str, disk.FileStamp], reader_uid: int | None) -> None:
    now = source.walk(root, reader_uid)
    for path in sorted(now.keys() | stamps.keys()):
        if now.get(path) != stamps.get(path):
            raise source.still_changing(path)
