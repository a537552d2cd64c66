"""Verifies the files of a mounted model image before they are loaded, so that only code runs that the digest
covers.

`$SLIPWAY_MODEL_FILES_DIGEST` is the hash of `files.json` (beside the model directory), which lists the digest
of every file. A file is opened once, and the same descriptor is hashed and loaded: replacing the file between
the two has no effect.

Files with code (a pickle, a program) and `slipway.json` are hashed at every load. Other files are hashed too,
unless the node has just compared the image with its seal, as then they have not changed since the store
hashed them. The model store adds the list to every image; of the images in a registry, those that Slipway
built have it.
"""

import contextlib
import fnmatch
import hashlib
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import errors
from serving.images.documents import output_manifest
from serving.resources import names
from serving.resources.formats import file_list
from serving.system.files import regular_file


@dataclass(frozen=True)
class ModelFiles:
    """The files that a framework loads."""

    programs: tuple[str, ...]
    """Names of files that are hashed at every load, as they have code; exactly one of them must exist."""
    model_weights: tuple[str, ...] = ()
    """Names, or patterns of names, of further files, which may be missing."""

    def has_model_weights(self, path: str) -> bool:
        """Whether a file of the image is one of `model_weights`."""
        return "/" not in path and any(fnmatch.fnmatchcase(path, pattern) for pattern in self.model_weights)


class OpenFile:
    """An open file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        """Open and map the file.

        Raises:
            errors.Permanent: `DigestMismatch`, the file cannot be read or is not a regular file.
        """
        self.name = path.name
        try:
            self._fd = regular_file.open_fd(path)
        except OSError as error:
            raise errors.Permanent(
                "DigestMismatch", f"{path.name}: cannot be read: {error.strerror}"
            ) from error
        self.data = (
            mmap.mmap(self._fd, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
            if os.fstat(self._fd).st_size
            else b""  # an empty file cannot be mapped
        )

    @property
    def reopen_path(self) -> str:
        """A path by which a library opens this same file, whatever its name refers to now."""
        return f"/proc/self/fd/{self._fd}"

    def digest(self) -> str:
        """Return `sha256:<hex>` of the bytes."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def close(self) -> None:
        """Close the descriptor and the mapping; a library's mappings stay. Repeating it is a no-op."""
        if self._fd < 0:
            return
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        os.close(self._fd)
        self._fd = -1


@dataclass(frozen=True)
class VerifiedModel:
    """The open files of a verified model, and its manifest."""

    program: OpenFile
    model_weights: Mapping[str, OpenFile]
    """By name; only those that the image has."""
    output: output_manifest.OutputManifest
    """`slipway.json`, with the model's declared inputs; empty where the image has none."""

    def close(self) -> None:
        """Close all files."""
        for file in (self.program, *self.model_weights.values()):
            file.close()


def verify(directory: Path, files_digest: str, model_files: ModelFiles, *, is_sealed: bool) -> VerifiedModel:
    """Verify everything below `directory`, and open the files to load.

    Args:
        directory: the image's `models` directory; `files.json` lies beside it.
        files_digest: `sha256:<hex>` of that list.
        model_files: the files to load.
        is_sealed: whether the node has just checked the seal of the image.

    Raises:
        errors.Permanent: `DigestMismatch` (the message names the file), `InvalidImage`, `InvalidManifest`,
            `ModelFileMissing`.
    """
    digests = _digests(directory, files_digest)
    programs = [path for path in model_files.programs if path in digests]
    if len(programs) != 1:
        raise errors.Permanent(
            "ModelFileMissing",
            f"exactly one of {', '.join(model_files.programs)} must be in the image, "
            f"got {sorted(digests)[:20]}",
        )
    always_hashed = {programs[0], names.MANIFEST_FILE}
    loaded: dict[str, OpenFile] = {}
    output = output_manifest.OutputManifest()
    with contextlib.ExitStack() as opened:
        for path, expected in sorted(digests.items()):
            is_loaded = path == programs[0] or model_files.has_model_weights(path)
            is_hashed = path in always_hashed or not is_sealed
            if not (is_loaded or is_hashed):
                continue
            file = opened.enter_context(contextlib.closing(OpenFile(directory / path)))
            if is_hashed and file.digest() != expected:
                raise errors.Permanent("DigestMismatch", f"{path}: must be {expected}, got {file.digest()}")
            if path == names.MANIFEST_FILE:
                output = output_manifest.parse(bytes(file.data))
            if is_loaded:
                loaded[path] = file
            else:
                file.close()
        opened.pop_all()  # after success the files to load stay open; `VerifiedModel.close` closes them
    return VerifiedModel(loaded.pop(programs[0]), loaded, output)


def _digests(directory: Path, files_digest: str) -> dict[str, str]:
    """Return the digest of each file by path.

    Raises:
        errors.Permanent: `DigestMismatch`, the list has another digest, or the files are not those of the
            list; `InvalidImage`, there is no list.
    """
    document = _read(directory.parent / file_list.NAME)
    if (digest := file_list.digest_of(document)) != files_digest:
        raise errors.Permanent(
            "DigestMismatch", f"{file_list.NAME}: must be the ModelVersion's {files_digest}, got {digest}"
        )
    digests = file_list.parse(document)
    paths = {
        Path(parent, name).relative_to(directory).as_posix()
        for parent, directories, files in os.walk(directory)
        for name in [*files, *(d for d in directories if Path(parent, d).is_symlink())]
    }
    for path in sorted(paths ^ set(digests)):
        rule = "is missing" if path in digests else f"is not in {file_list.NAME}"
        raise errors.Permanent("DigestMismatch", f"{path}: {rule}")
    return digests


def _read(path: Path) -> bytes:
    if not os.path.lexists(path):
        raise errors.Permanent(
            "InvalidImage",
            f"{path.name}: is missing beside the model: another tool or an older release built the image; "
            "create a ModelVersion of its files",
        )
    file = OpenFile(path)
    data = bytes(file.data)
    file.close()
    return data
