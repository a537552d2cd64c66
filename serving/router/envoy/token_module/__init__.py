"""Envoy's module that counts tokens: its source in C, and the library that an installation builds of it."""

import hashlib
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

NOT_BUILT = (
    "the gateway was installed without a C compiler, so that tokens are not counted: "
    "install gcc and the headers of the C library, and install the gateway again"
)
"""Why there is no library."""


@cache
def library() -> Path | None:
    """Return the library; None if it was not built."""
    folder = Path(__file__).parent
    return next(
        (path for suffix in EXTENSION_SUFFIXES if (path := folder / f"library{suffix}").exists()), None
    )


@cache
def name() -> str:
    """Return the name by which Envoy finds the library; an empty text without it.

    It has the digest of the content: an Envoy with another library has another bootstrap, and is not adopted.
    """
    path = library()
    return f"slipway_tokens_{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}" if path is not None else ""
