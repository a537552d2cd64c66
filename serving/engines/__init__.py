"""The engines that an installation knows: those of Slipway's manifests, and those of its users."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml
from pydantic import ValidationError

from serving import errors
from serving.resources.engine import Engine
from serving.resources.formats import manifest_yaml

_SUFFIX = ".yaml"


@cache
def shipped() -> Mapping[str, Engine]:
    """Return the engines of Slipway's own manifests, by name."""
    return _read(files(__package__).joinpath("manifests").iterdir())


def known(folder: Path) -> Mapping[str, Engine]:
    """Return the engines by name; a manifest of `folder` replaces the shipped one of its name.

    Raises:
        errors.UserError: a manifest is invalid; the message has file, field, rule and value.
    """
    return {**shipped(), **(_read(folder.iterdir()) if folder.is_dir() else {})}


def _read(entries: Iterable[Traversable]) -> dict[str, Engine]:
    engines = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name.endswith(_SUFFIX):
            engine = _engine(entry)
            engines[engine.name] = engine
    return engines


def _engine(entry: Traversable) -> Engine:
    try:
        fields = yaml.load(entry.read_text(), manifest_yaml.Loader)  # noqa: S506 a SafeLoader
        engine = Engine.model_validate(fields)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise errors.UserError(f"{entry}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        raise errors.UserError(f"{entry}: {path}: {first['msg']}, got {first['input']!r}") from error
    if f"{engine.name}{_SUFFIX}" != entry.name:
        raise errors.UserError(f"{entry}: name: must be that of the file, got {engine.name}")
    return engine
