"""Libraries that an installation of Slipway has built from C."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from serving import errors


def path(folder: Path, name: str) -> Path:
    """Return the library of this name in a folder of the installation.

    Raises:
        errors.UserError: the installation has none.
    """
    for suffix in EXTENSION_SUFFIXES:
        if (library := folder / f"{name}{suffix}").exists():
            return library
    raise errors.UserError(f"{folder}: the library {name} is not built; install Slipway again")
