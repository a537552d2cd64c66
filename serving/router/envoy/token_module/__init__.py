"""Envoy's module that counts tokens: its source in C (`accounting.c` counts), and the library that an
installation builds of it.
"""

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
def digest() -> str:
    """Return the SHA-256 digest of the library; an empty text without one."""
    path = library()
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None else ""
