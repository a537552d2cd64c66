"""Folders of manifests, one in each file: the engines and the kinds of jobs that an installation knows."""

from collections.abc import Iterable
from importlib.resources.abc import Traversable
from typing import TypeVar

import yaml
from pydantic import ValidationError

from serving import errors
from serving.resources.base import Manifest
from serving.resources.formats import manifest_yaml

_SUFFIX = ".yaml"
M = TypeVar("M", bound=Manifest)


def read(entries: Iterable[Traversable], model: type[M]) -> dict[str, M]:
    """Return the manifests in the `.yaml` files among the entries of a folder, by their names.

    Raises:
        errors.UserError: one is invalid; the message has file, field, rule and value.
    """
    manifests = (
        _manifest(entry, model)
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.name.endswith(_SUFFIX)
    )
    return {manifest.name: manifest for manifest in manifests}


def _manifest(entry: Traversable, model: type[M]) -> M:
    try:
        fields = yaml.load(entry.read_text(), manifest_yaml.Loader)  # noqa: S506 a SafeLoader
        manifest = model.model_validate(fields)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise errors.UserError(f"{entry}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        raise errors.UserError(f"{entry}: {path}: {first['msg']}, got {first['input']!r}") from error
    if f"{manifest.name}{_SUFFIX}" != entry.name:
        raise errors.UserError(f"{entry}: name: must be that of the file, got {manifest.name}")
    return manifest
