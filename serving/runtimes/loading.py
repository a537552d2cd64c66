"""From a mounted model image to verified bytes. Nothing that holds code is used that does not belong to the digest.

The chain: `$SLIPWAY_MODEL_DIGEST` is the hash of `manifest.json` (beside the model directory), which lists the
digest of every file. A file is opened once; what is hashed is a mapping of that descriptor, and what is loaded is the
same descriptor, so that a file that takes its name between the check and the use changes nothing.

A file that holds code (a pickle, a program) is hashed at every load. Others are, unless the node has just compared
the image with its seal, which is what `sealed` says: then they are as they were when the store hashed them. An image that
others built lists no files; its seal is all there is to go by, so without one it is refused.
"""

import hashlib
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import errors
from serving.images.documents import image, oci, output_manifest
from serving.resources import names

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Wanted:
    """The files that a framework loads. `programs` hold code, and one of them must be there; `weights` hold none."""

    programs: tuple[str, ...]
    weights: tuple[str, ...] = ()


class Opened:
    """One file: its descriptor, and its bytes as a mapping of it."""

    def __init__(self, path: Path) -> None:
        """Open and map it.

        Raises:
            errors.Permanent: `DigestMismatch`, it cannot be read or is no regular file.
        """
        self.name = path.name
        try:
            self._fd = os.open(path, _OPEN)
        except OSError as error:
            raise errors.Permanent(
                "DigestMismatch", f"{path.name}: cannot be read: {error.strerror}"
            ) from error
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise errors.Permanent("DigestMismatch", f"{path.name}: is not a regular file")
        empty = found.st_size == 0  # which cannot be mapped
        self.data = b"" if empty else mmap.mmap(self._fd, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)

    @property
    def again(self) -> str:
        """A path by which a library may open the very same file."""
        return f"/proc/self/fd/{self._fd}"

    def digest(self) -> str:
        """Return `sha256:<hex>` of the bytes."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def close(self) -> None:
        """Give the descriptor and the mapping back; what a library has mapped by itself stays."""
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        os.close(self._fd)


@dataclass(frozen=True)
class Verified:
    """A model's files, open and checked, and its description."""

    program: Opened
    weights: Mapping[str, Opened]
    output: output_manifest.OutputManifest

    def close(self) -> None:
        """Close them all."""
        for opened in (self.program, *self.weights.values()):
            opened.close()


def verified(directory: Path, digest: str, sealed: str, wanted: Wanted) -> Verified:
    """Check everything below `directory`, and open what is wanted.

    Args:
        directory: the image's `models` directory; `manifest.json` lies beside it.
        digest: `sha256:<hex>` of the manifest.
        sealed: digest of the image whose seal the node has just checked; empty where nobody did.
        wanted: what will be loaded.

    Raises:
        errors.Permanent: `DigestMismatch` (the message names the file), `InvalidImage`, `InvalidManifest`,
            `ModelFileMissing`.
    """
    document = _read(directory.parent / "manifest.json")
    if oci.digest_of(document) != digest:
        raise errors.Permanent(
            "DigestMismatch",
            f"manifest.json: must be the ModelVersion's {digest}, got {oci.digest_of(document)}",
        )
    expected = _expected(directory, document, sealed == digest)
    programs = [path for path in wanted.programs if path in expected]
    if len(programs) != 1:
        raise errors.Permanent(
            "ModelFileMissing",
            f"exactly one of {', '.join(wanted.programs)} must be in the image, got {sorted(expected)[:20]}",
        )
    always = {programs[0], names.MANIFEST_FILE}
    opened: dict[str, Opened] = {}
    output = output_manifest.OutputManifest()
    for path, want in sorted(expected.items()):
        loaded = path == programs[0] or path in wanted.weights
        hashed = path in always or sealed != digest
        if not (loaded or hashed):
            continue
        file = Opened(directory / path)
        if hashed and want is not None and file.digest() != want:
            raise errors.Permanent("DigestMismatch", f"{path}: must be {want}, got {file.digest()}")
        if path == names.MANIFEST_FILE:
            output = output_manifest.parse(bytes(file.data))
        if loaded:
            opened[path] = file
        else:
            file.close()
    program = opened.pop(programs[0])
    return Verified(program, opened, output)


def _expected(directory: Path, document: bytes, sealed: bool) -> dict[str, str | None]:  # noqa: FBT001 one private caller
    """Return the files that must be there, and their digests as far as the image lists them."""
    found = {
        Path(at, name).relative_to(directory).as_posix()
        for at, directories, files in os.walk(directory)
        for name in [*files, *(d for d in directories if Path(at, d).is_symlink())]
    }
    listed = [layer.files for layer in image.parse(document).layers]
    if None in listed:
        if not sealed:
            raise errors.Permanent(
                "InvalidImage", "the image lists no digests of its files, and no node has checked its seal"
            )
        return dict.fromkeys(found)
    expected: dict[str, str | None] = {file.path: file.digest for files in listed for file in files or ()}
    for path in sorted(found ^ set(expected)):
        rule = "is missing" if path in expected else "is not in the manifest"
        raise errors.Permanent("DigestMismatch", f"{path}: {rule}")
    return expected


def _read(path: Path) -> bytes:
    file = Opened(path)
    data = bytes(file.data)
    file.close()
    return data
