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


def environment(folder: Path) -> dict[str, str]:
    """Link the library in a folder; return the variable of the environment by which Envoy finds it, if any.

    Raises:
        OSError: the link cannot be made.
    """
    path = library()
    if path is None:
        return {}
    link = folder / f"lib{name()}.so"
    if not link.exists() or link.readlink() != path:
        for old in folder.glob("libslipway_tokens_*.so"):
            old.unlink()
        link.symlink_to(path)
    return {"ENVOY_DYNAMIC_MODULES_SEARCH_PATH": str(folder)}
