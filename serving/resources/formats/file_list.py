"""The list of a model's files in `files.json`, beside the directory of the files: by it, a runtime checks the
files of an image volume, of a copy and of the model store alike. Pure.

The files alone determine its bytes, so that its digest in a Pod covers every byte that the Pod loads.
"""

import hashlib
from collections.abc import Iterable

import orjson

NAME = "files.json"
"""Beside `models/`, so that no file of a model has its path."""


def encode(files: Iterable[tuple[str, str, int]]) -> bytes:
    """Return the canonical bytes of a list: sorted by path, sorted keys, no spaces, UTF-8.

    Args:
        files: path relative to the directory of the files, digest (`sha256:<hex>`) and bytes of each.
    """
    entries = [{"path": path, "digest": digest, "size": size} for path, digest, size in sorted(files)]
    return orjson.dumps({"files": entries}, option=orjson.OPT_SORT_KEYS)


def digest(files: Iterable[tuple[str, str, int]]) -> str:
    """Return the digest of the list of these files."""
    return digest_of(encode(files))


def digest_of(document: bytes) -> str:
    """Return `sha256:<hex>` of a list's bytes."""
    return f"sha256:{hashlib.sha256(document).hexdigest()}"


def parse(document: bytes) -> dict[str, str]:
    """Return the digest of each file by path, of a list whose digest was checked."""
    return {file["path"]: file["digest"] for file in orjson.loads(document)["files"]}
