"""Envoy's module: its source in C, and the library that an installation builds of it.

It counts answers (`answers.c`) and the tokens of language models (`token_accounting.c`), and routes
requests by the model that their body names (`models.c`).
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from serving.system import native_library


@cache
def library() -> Path:
    """Return the library.

    Raises:
        errors.UserError: the installation has none.
    """
    return native_library.path(Path(__file__).parent, "library")


@cache
def digest() -> str:
    """Return the SHA-256 digest of the library."""
    return hashlib.sha256(library().read_bytes()).hexdigest()


def config() -> dict[str, Any]:
    """Return how Envoy loads the module."""
    return {
        "module": {"local": {"filename": str(library())}},
        # Unloading the library would free its thread-local memory while threads still use it.
        "do_not_close": True,
    }
