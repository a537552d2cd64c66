"""Finds the files with code in the tree of a model image."""

import os
from collections.abc import Iterable
from pathlib import Path

from serving import errors
from serving.images.file_formats.content import Content
from serving.images.file_formats.detection import FileFormat, detect

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def with_code(directory: Path, paths: Iterable[str]) -> dict[str, FileFormat]:
    """Return the formats of the files that have code, by path.

    Args:
        directory: has the files.
        paths: of the files, relative to it.

    Raises:
        errors.Temporary: `ImageMissing`, a file has been removed meanwhile.
    """
    detected = {path: _detect(directory, path) for path in sorted(paths)}
    return {path: file_format for path, file_format in detected.items() if file_format.has_code}


def _detect(directory: Path, path: str) -> FileFormat:
    try:
        with open(os.open(directory / path, _OPEN), "rb") as file:  # noqa: PTH123 a descriptor
            return detect(path, Content(file, os.fstat(file.fileno()).st_size))
    except FileNotFoundError as error:
        raise errors.Temporary("ImageMissing", f"{directory / path} is not in the model store") from error
