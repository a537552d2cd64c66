"""Reads an unchecked manifest: values by their paths, with notes about the fields that are not converted."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.errors import UserError
from serving.objects import Object

_SHOWN_CHARACTERS = 60
"""Characters of a value that a message shows."""
_MOST_LEVELS = 50
"""Greatest depth of a value."""
_INTEGER_BITS = 64
"""Bits of a JSON integer, of which one is the sign."""


@dataclass(frozen=True)
class Note:
    """A note about a field without an equivalent, or with another meaning."""

    path: str
    advice: str
    """The treatment of the field, and the alternative."""


@dataclass
class Notes:
    """The notes about one manifest, in reading order."""

    entries: list[Note] = field(default_factory=list)

    def add(self, path: str, advice: str) -> None:
        """Add a note, unless it exists."""
        note = Note(path, advice)
        if note not in self.entries:
            self.entries.append(note)

    def add_unknown(self, value: Mapping[str, Any], path: str, known: Collection[str], advice: str) -> None:
        """Add a note for every field that is not `known`; `path` is empty for the manifest itself."""
        for key in value:
            if key not in known:
                self.add(f"{path}.{key}" if path else key, advice)


def mapping(value: Any, path: str) -> Object:
    """Return an object's fields; none if it is absent.

    Raises:
        UserError: it is not an object, or has a key that JSON cannot have.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be an object, and is {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"{path}: names of fields must be text, and one is {shown(key)}")
    return value


def items(value: Any, path: str) -> list[Any]:
    """Return a list; empty if absent. Raises UserError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"{path}: must be a list, and is {shown(value)}")
    return value


def text(value: Any, path: str) -> str:
    """Return text, or a number or boolean as text; empty if absent. Raises UserError for anything else."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float) or _is_huge(value):
        raise UserError(f"{path}: must be text, and is {shown(value)}")
    return str(value)


def integer(value: Any, path: str) -> int | None:
    """Return a whole number; None if absent. Raises UserError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or _is_huge(value):
        raise UserError(f"{path}: must be a whole number, and is {shown(value)}")
    return value


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """Return a copy of a value that JSON can have. Raises UserError for others, and if nested too deeply."""
    if depth > _MOST_LEVELS:  # with YAML's aliases, a value can contain itself
        raise UserError(f"{path}: is nested deeper than {_MOST_LEVELS} levels")
    if isinstance(value, dict):
        return {key: plain(item, f"{path}.{key}", depth + 1) for key, item in mapping(value, path).items()}
    if isinstance(value, list):
        return [plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float) and not _is_huge(value) and math.isfinite(value):
        return value
    raise UserError(f"{path}: JSON has no {type(value).__name__} such as {shown(value)}; quote it")


def _is_huge(value: Any) -> bool:
    """Whether an integer is too large for JSON readers, and perhaps for Python to print."""
    return isinstance(value, int) and value.bit_length() >= _INTEGER_BITS


def shown(value: Any) -> str:
    """Return a value for a message, cut short."""
    try:
        words = "a number of more than 64 bits" if _is_huge(value) else repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits, wherever it is nested
        words = f"a {type(value).__name__} with a number of more than 64 bits"
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[:_SHOWN_CHARACTERS]}..."
