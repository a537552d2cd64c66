"""A layer becomes files of a staged tree while it arrives; its blob is kept only where they do not give it again."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from serving import errors
from serving.images.capture import source
from serving.images.documents import oci
from serving.images.documents.image import Layer, invalid
from serving.images.imports import tarball
from serving.images.store import disk
from serving.images.store.staging import Staging


@dataclass(frozen=True)
class Unpacked:
    """What a layer had: the digest of its uncompressed tar, its files, and the blob where it is kept."""

    diff_id: str
    files: tuple[oci.File, ...]
    blob: Path | None


def unpack(layer: Layer, staging: Staging, chunks: Iterable[bytes]) -> Unpacked:
    """Write the layer's files below `models/` into the staged tree; after an error none of them is left.

    Raises:
        errors.Permanent: `InvalidImage`; the message names the member and the rule.
        errors.Temporary: `DigestMismatch`, `DiskFull`.
    """
    made: list[Path] = []
    whole = False
    try:
        with disk.disk_full(), ExitStack() as opened:
            kept = None if layer.follows_from_its_files else staging.blob_path(layer.digest)
            blob = None if kept is None else opened.enter_context(_create(kept, made))
            found = _read(layer, staging, _arriving(chunks, blob), made)
            if blob is not None:
                os.fsync(blob.fileno())
        whole = True
    finally:
        if not whole:
            for path in made:
                path.unlink(missing_ok=True)
    return Unpacked(found[0], found[1], kept)


def _arriving(chunks: Iterable[bytes], blob: BinaryIO | None) -> tarball.Source:
    return tarball.Source(chunks, None if blob is None else lambda data: disk.put(blob, data))


def _create(path: Path, made: list[Path]) -> BinaryIO:
    file = path.open("xb", buffering=0)
    made.append(path)
    return file


def _read(
    layer: Layer, staging: Staging, arriving: tarball.Source, made: list[Path]
) -> tuple[str, tuple[oci.File, ...]]:
    tar = tarball.Tar(tarball.decompressed(arriving, layer.compression))
    try:
        files = tuple(_write(tar, member, staging, made) for member in _few(tar))
        _check_description(layer, tar, files)
    except errors.Permanent as error:
        if error.reason == "InvalidImage":
            # So it seems where bytes were damaged on the way, which may not last.
            arriving.drain()
            _check_digest(layer, arriving)
        raise
    arriving.drain()
    _check_digest(layer, arriving)
    return tar.diff_id, files


def _few(tar: tarball.Tar) -> Iterable[tarball.Member]:
    for count, member in enumerate(tar.members()):
        if count == source.MAX_FILES:
            raise invalid(f"a layer has more than {source.MAX_FILES} files")
        yield member


def _write(tar: tarball.Tar, member: tarball.Member, staging: Staging, made: list[Path]) -> oci.File:
    try:
        file = _create(staging.file_path(member.path), made)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise invalid(
            f"{member.path!r}: the image has this path twice, or a file where it needs a directory"
        ) from error
    digest = hashlib.sha256()
    with file:
        for chunk in tar.data(member.size):
            digest.update(chunk)
            disk.put(file, chunk)
        os.fsync(file.fileno())
    return oci.File(member.path, f"sha256:{digest.hexdigest()}", member.size)


def _check_description(layer: Layer, tar: tarball.Tar, files: tuple[oci.File, ...]) -> None:
    if layer.files is None:
        return
    if files != layer.files:
        odd = min({file.path for file in {*files} ^ {*layer.files}}, default="their order")
        raise invalid(f"layer {layer.digest}: {odd!r} is not as the annotation {oci.FILES} says")
    if layer.follows_from_its_files and tar.frame != tarball.frame(layer.plan()):
        raise invalid(f"layer {layer.digest}: is not the tar that its annotation {oci.FILES} describes")


def _check_digest(layer: Layer, arrived: tarball.Source) -> None:
    if arrived.digest != layer.digest or arrived.size != layer.size:
        raise errors.Temporary(
            "DigestMismatch",
            f"layer: must be {layer.digest} ({layer.size} bytes), got {arrived.digest} ({arrived.size} bytes)",
            retry_after=1.0,
        )
