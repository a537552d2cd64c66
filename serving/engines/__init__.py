"""The engines that an installation knows: those of Slipway's manifests, and those of its users."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from serving import manifest_files
from serving.resources.engine import Engine


@cache
def shipped() -> Mapping[str, Engine]:
    """Return the engines of Slipway's own manifests, by name."""
    return manifest_files.read(files(__package__).joinpath("manifests").iterdir(), Engine)


def known(folder: Path) -> Mapping[str, Engine]:
    """Return the engines by name; a manifest of `folder` replaces the shipped one of its name.

    Raises:
        errors.UserError: a manifest is invalid; the message has file, field, rule and value.
    """
    own = manifest_files.read(folder.iterdir(), Engine) if folder.is_dir() else {}
    return {**shipped(), **own}
