"""`files.json`, the list of a model's files with their digests. A runtime checks the files that it loads
against the list, in an image volume, in a copy and in the model store alike. Pure.

The bytes of the list depend on the files alone. So the digest of the list, which the environment of a Pod
has, covers every byte of the model that the Pod loads.
"""

import hashlib
from collections.abc import Iterable

import orjson

NAME = "files.json"
"""Lies beside `models/`, the directory of the files, so that no file of a model has the same path."""


def encode(files: Iterable[tuple[str, str, int]]) -> bytes:
    """Return the canonical bytes of a list: sorted by path, sorted keys, no spaces, UTF-8.

    Args:
        files: of each file the path relative to `models/`, the digest (`sha256:<hex>`) and the size in bytes.
    """
    entries = [{"path": path, "digest": digest, "size": size} for path, digest, size in sorted(files)]
    return orjson.dumps({"files": entries}, option=orjson.OPT_SORT_KEYS)


def digest(files: Iterable[tuple[str, str, int]]) -> str:
    """Return the digest of the list of these files, which are as in `encode`."""
    return digest_of(encode(files))


def digest_of(document: bytes) -> str:
    """Return `sha256:<hex>` of a list's bytes."""
    return f"sha256:{hashlib.sha256(document).hexdigest()}"


def parse(document: bytes) -> dict[str, str]:
    """Return the digest of each file by path, from a list whose digest the caller has checked."""
    return {file["path"]: file["digest"] for file in orjson.loads(document)["files"]}
