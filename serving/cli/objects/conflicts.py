"""The message of a conflict between field managers: fields, managers, both values and the way out. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from serving import errors

REASON = "FieldManagerConflict"
TRAFFIC_MANAGER = "slipway-traffic"
"""Field manager of `slipway traffic set`: a later apply of other weights is a conflict, not a silent undo."""
TUNE_MANAGER = "slipway-tune"
"""Field manager of `slipway tune apply`."""
_COMMANDS: Mapping[str, str] = {TRAFFIC_MANAGER: "slipway traffic set", TUNE_MANAGER: "slipway tune apply"}
_STEP = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")
"""One step of a path: the name of a field (group 1), or the selector of a list item (group 2)."""
_MANAGER = re.compile(r'conflicts? with "([^"]*)"')
_ABSENT = object()


def is_of_field_managers(error: errors.ApiError) -> bool:
    """Whether the error is a conflict of field managers; other conflicts are about a stale object."""
    return isinstance(error, errors.Conflict) and any(cause.reason == REASON for cause in error.causes)


def words(error: errors.ApiError, stored: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Return the message for a conflict of field managers: one line per field, then what to do.

    Args:
        error: the conflict.
        stored: the object that the API has.
        manifest: the object that the user has applied.
    """
    lines = ["somebody else has set fields that the manifest sets to other values:"]
    for cause in error.causes:
        stored_value, manifest_value = value(stored, cause.field), value(manifest, cause.field)
        values = (
            ""
            if _ABSENT in (stored_value, manifest_value)
            else f" is {stored_value!r}, the manifest has {manifest_value!r}"
        )
        lines.append(f"  {cause.field.removeprefix('.')}{values}; set by {_manager(cause.message)}")
    lines += [
        (
            "To keep what is set, leave these fields out of the manifest (or write the same values into it), "
            "and apply again."
        ),
        "To take them over, apply again with --force-conflicts.",
    ]
    return "\n".join(lines)


def _manager(message: str) -> str:
    """Return the field manager that a cause's message quotes, with its command if it is one of Slipway's."""
    match = _MANAGER.search(message)
    name = match[1] if match else message
    return f"{name} (`{_COMMANDS[name]}`)" if name in _COMMANDS else name


def value(obj: Any, path: str) -> Any:
    """Return the value at a path of a conflict, such as `.spec.predictors[name="stable"].trafficWeight`.

    A missing value is `_ABSENT`, which equals nothing else.
    """
    for name, selector in _STEP.findall(path):
        if name:
            obj = obj.get(name, _ABSENT) if isinstance(obj, Mapping) else _ABSENT
        else:
            obj = _item(obj, selector)
    return obj


def _item(items: Any, selector: str) -> Any:
    """Return the list item of a selector, an index or `KEY=VALUE,...`; `_ABSENT` if there is none."""
    if not isinstance(items, list):
        return _ABSENT
    if selector.isdigit():
        return items[int(selector)] if int(selector) < len(items) else _ABSENT
    wanted = {}
    for part in selector.split(","):
        key, _, text = part.partition("=")
        wanted[key] = text.strip('"')
    for item in items:
        if isinstance(item, Mapping) and all(str(item.get(key)) == text for key, text in wanted.items()):
            return item
    return _ABSENT
