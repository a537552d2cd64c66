"""Seals: what every file of a tree was when it was put there, so that a touch is seen without reading the
bytes.

Any write, chmod, rename or exchange changes inode, size, mtime or ctime, and nobody but the kernel sets a
ctime.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from serving import errors
from serving.images.documents import layers, oci
from serving.images.documents.image import Image
from serving.images.store import disk
from serving.images.store.disk import FileStamp

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Sealed:
    """One file of a tree as it was when the tree was made."""

    digest: str
    seen: FileStamp


def encode(digest: str, tree: Path, digests: Mapping[str, str]) -> bytes:
    """Return the seal of a finished tree.

    Args:
        digest: of the manifest.
        tree: has `manifest.json` and `models/`.
        digests: of each file, by path relative to `models/`.
    """
    named = {f"{layers.ROOT}/{path}": found for path, found in digests.items()} | {MANIFEST: digest}
    files = {path: {"digest": named[path], **asdict(seen)} for path, seen in disk.stat_tree(tree).items()}
    return oci.encode({"image": digest, "files": files})


def read(path: Path) -> dict[str, Sealed]:
    """Read a seal.

    Raises:
        errors.Permanent: `SealBroken`: it is not there, or is no seal.
    """
    try:
        return {
            name: Sealed(
                file["digest"], FileStamp(file["inode"], file["size"], file["mtime_ns"], file["ctime_ns"])
            )
            for name, file in json.loads(path.read_bytes())["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise broken(f"{path} cannot be read: {error!r}") from error


def check(
    tree: Path, digest: str, image: Image, sealed: Mapping[str, Sealed], *, deep: bool
) -> tuple[oci.File, ...]:
    """Return the image's files, sorted, after comparing the tree with its seal, and the seal with the image.

    Args:
        tree: where the files lie.
        digest: of the manifest.
        image: what the manifest says.
        sealed: what the seal says.
        deep: read and hash every byte too.

    Raises:
        errors.Permanent: `SealBroken`; the message names the file.
    """
    prefix = f"{layers.ROOT}/"
    files = tuple(
        oci.File(path.removeprefix(prefix), file.digest, file.seen.size)
        for path, file in sorted(sealed.items())
        if path.startswith(prefix)
    )
    said = {file for layer in image.layers for file in layer.files or ()}
    ours = all(layer.files is not None for layer in image.layers)
    agree = said == set(files) if ours else said <= set(files)
    if not agree or sealed.get(MANIFEST) is None or sealed[MANIFEST].digest != digest:
        raise broken(f"the seal of {digest} is not of this image")
    missing = set(sealed)
    for path, now in disk.stat_tree(tree).items():
        if path not in sealed or sealed[path].seen != now:
            raise broken(f"{tree / path} was touched after it was sealed")
        if deep and disk.file_digest(tree / path) != sealed[path].digest:
            raise broken(f"{tree / path} does not have the digest of its seal")
        missing.discard(path)
    if missing:
        raise broken(f"{tree / min(missing)} is missing")
    return files


def broken(message: str) -> errors.Permanent:
    """Return the error for a store that somebody else wrote to."""
    return errors.Permanent("SealBroken", message)
