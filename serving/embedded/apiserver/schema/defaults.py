"""Fills in the defaults that a schema states."""

from collections.abc import Container
from typing import Any

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema


def fill(value: Any, schema: Schema, *, unchanged: Container[str] = ()) -> Any:
    """Return the value with the schema's defaults filled in; the value itself if no default is missing.

    Args:
        value: JSON data.
        schema: the value's schema.
        unchanged: members of the value, a map, that are known to have their defaults already.
    """
    places = _places(schema)
    if isinstance(value, dict):
        new = {key: schemas.clone(default) for key, default in places.own_defaults if key not in value}
        to_fill = [(key, child) for key, child in places.members.items() if key in value]
        if places.other_members is not None:
            to_fill += [(key, places.other_members) for key in value if key not in places.properties]
        for key, child in to_fill:
            filled = value[key] if key in unchanged else fill(value[key], child)
            if filled is not value[key]:
                new[key] = filled
        return {**value, **new} if new else value
    if isinstance(value, list) and places.items is not None:
        items = [fill(item, places.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


class _Places:
    """Where a schema has defaults."""

    def __init__(self, schema: Schema) -> None:
        self.properties = properties = schema.get("properties") or {}
        self.own_defaults = [
            (key, fill(child["default"], child)) for key, child in properties.items() if "default" in child
        ]
        """The properties with a default, and the default, which is complete itself."""
        self.members = {key: child for key, child in properties.items() if _has_defaults(child)}
        """The schemas of the properties with defaults inside."""
        self.other_members = _if_defaults(schema.get("additionalProperties"))
        """The schema of members that are no properties; None if it has no defaults inside."""
        self.items = _if_defaults(schema.get("items"))
        """The schema of a list's items; None if it has no defaults inside."""


_places = schemas.cached_by_schema(_Places)


def _has_defaults(schema: Schema) -> bool:
    places = _places(schema)
    return bool(
        places.own_defaults or places.members or places.other_members is not None or places.items is not None
    )


def _if_defaults(schema: Any) -> Schema | None:
    return schema if isinstance(schema, dict) and _has_defaults(schema) else None
