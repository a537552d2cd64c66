"""Finds the files with code in the tree of a model image."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serving import errors
from serving.images.file_formats import onnx_tensors
from serving.images.file_formats.content import Content
from serving.images.file_formats.data_formats import is_onnx
from serving.images.file_formats.detection import ONNX_TENSORS, FileFormat, detect

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""If a link or a pipe has replaced a file, it is neither followed nor waited for."""


def with_code(directory: Path, paths: Iterable[str]) -> dict[str, FileFormat]:
    """Return the formats of the files that have code, by path.

    Args:
        directory: has the files.
        paths: of the files, relative to it.

    Raises:
        errors.Temporary: `ImageMissing`, a file has been removed meanwhile.
    """
    ordered = sorted(paths)
    tensors = _onnx_tensors(directory, ordered)
    detected = {path: _detect(directory, path, tensors) for path in ordered}
    return {path: file_format for path, file_format in detected.items() if file_format.has_code}


def _onnx_tensors(directory: Path, paths: Collection[str]) -> frozenset[str]:
    """Return the files where the image's ONNX models keep tensors; models are read only if one may exist."""
    tensors: set[str] = set()
    if any(path.lower().endswith(ONNX_TENSORS) for path in paths):
        for path in paths:
            if path.lower().endswith(".onnx"):
                with _content(directory, path) as content:
                    tensors |= onnx_tensors.files(path, content) if is_onnx(content) else frozenset()
    return frozenset(tensors)


def _detect(directory: Path, path: str, tensors: Collection[str]) -> FileFormat:
    with _content(directory, path) as content:
        return detect(path, content, tensors)


@contextmanager
def _content(directory: Path, path: str) -> Iterator[Content]:
    try:
        with open(os.open(directory / path, _OPEN), "rb") as file:  # noqa: PTH123 a descriptor
            yield Content(file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError as error:
        raise errors.Temporary("ImageMissing", f"{directory / path} is not in the model store") from error
