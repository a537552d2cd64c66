"""Seals: the stamps of all files of a tree at insertion, which reveal changes without reading the bytes.

Any write, chmod, rename or replacement changes inode, size, mtime or ctime; no system call sets a ctime.
`files.json` has no stamp: its bytes follow from the seal, and are compared.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from serving import errors
from serving.images.documents import layers, oci
from serving.images.documents.image import Image
from serving.images.store import disk
from serving.images.store.disk import FileStamp
from serving.resources.formats import file_list
from serving.system.files import regular_file

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class SealedFile:
    """A file of a tree as of its insertion."""

    digest: str
    stamp: FileStamp


def encode(digest: str, tree: Path, files: Iterable[oci.File]) -> bytes:
    """Return the seal of a finished tree.

    Args:
        digest: of the manifest.
        tree: has `manifest.json` and `models/`.
        files: all below `models/`.
    """
    by_path = {f"{layers.ROOT}/{file.path}": file.digest for file in files} | {MANIFEST: digest}
    sealed = {path: {"digest": by_path[path], **asdict(stamp)} for path, stamp in _stamps(tree).items()}
    return oci.encode({"image": digest, "files": sealed})


def read(path: Path) -> dict[str, SealedFile]:
    """Read a seal.

    Raises:
        errors.Permanent: `SealBroken`, it is missing or malformed.
    """
    try:
        return {
            name: SealedFile(
                file["digest"], FileStamp(file["inode"], file["size"], file["mtime_ns"], file["ctime_ns"])
            )
            for name, file in json.loads(path.read_bytes())["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise seal_broken(f"{path} cannot be read: {error!r}") from error


def check(
    tree: Path, digest: str, image: Image, sealed: Mapping[str, SealedFile], *, deep: bool
) -> tuple[oci.File, ...]:
    """Compare a tree with its seal, and the seal with the image; return the image's files, sorted by path.

    Args:
        tree: of the files.
        digest: of the manifest.
        image: the parsed manifest.
        sealed: the files in the seal.
        deep: also read and hash all bytes.

    Raises:
        errors.Permanent: `SealBroken`; the message names the file.
    """
    in_seal = files_of(sealed)
    listed = {file for layer in image.layers for file in layer.files or ()}
    # Layers of other tools do not list their files (`files` is None): the seal then has more files.
    lists_all_files = all(layer.files is not None for layer in image.layers)
    matches_image = listed == set(in_seal) if lists_all_files else listed <= set(in_seal)
    if not matches_image or sealed.get(MANIFEST) is None or sealed[MANIFEST].digest != digest:
        raise seal_broken(f"the seal of {digest} belongs to another image")
    missing = set(sealed)
    for path, stamp in _stamps(tree).items():
        if path not in sealed or sealed[path].stamp != stamp:
            raise seal_broken(f"{tree / path} was changed after it was sealed")
        if deep and disk.file_digest(tree / path) != sealed[path].digest:
            raise seal_broken(f"{tree / path} does not have the digest of its seal")
        missing.discard(path)
    if missing:
        raise seal_broken(f"{tree / min(missing)} is missing")
    _check_list(tree / file_list.NAME, listing(in_seal))
    return in_seal


def files_of(sealed: Mapping[str, SealedFile]) -> tuple[oci.File, ...]:
    """Return the files below `models/` in a seal, sorted."""
    prefix = f"{layers.ROOT}/"
    return tuple(
        oci.File(path.removeprefix(prefix), file.digest, file.stamp.size)
        for path, file in sorted(sealed.items())
        if path.startswith(prefix)
    )


def listing(files: Iterable[oci.File]) -> bytes:
    """Return the bytes of a tree's `files.json`."""
    return file_list.encode((file.path, file.digest, file.size) for file in files)


def _stamps(tree: Path) -> dict[str, FileStamp]:
    return {path: stamp for path, stamp in disk.stat_tree(tree).items() if path != file_list.NAME}


def _check_list(path: Path, expected: bytes) -> None:
    try:
        with regular_file.open_binary(path) as file:
            stored = file.read(len(expected) + 1)
    except OSError as error:
        raise seal_broken(f"{path} cannot be read: {error.strerror}") from error
    if stored != expected:
        raise seal_broken(f"{path} is not the list of the files in the seal")


def seal_broken(message: str) -> errors.Permanent:
    """Return the error for a store that something else has written to."""
    return errors.Permanent("SealBroken", message)
