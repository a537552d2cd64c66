"""Rules in CEL are evaluated where a value has changed, and transition rules always."""

from typing import Any

import pytest

from serving.embedded.apiserver.schema import cel_rules

ITEM: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "x-kubernetes-validations": [{"rule": "self.x < 2", "message": "x must be below 2"}],
}


def broken(value: Any, old: Any, **list_type: Any) -> list[str]:
    """Return the fields that break the rule of the items of a list."""
    return [
        cause.field for cause in cel_rules.check(value, old, {"type": "array", "items": ITEM, **list_type})
    ]


@pytest.mark.parametrize("old", [None, [], [{"x": 2}], [{"x": 2}, {"x": 2}]])
def test_items_of_a_list_without_keys_are_compared_with_no_old_item(old: list[Any] | None) -> None:
    assert broken([{"x": 0}, {"x": 2}], old) == ["[1]"]


def test_unchanged_list_is_not_evaluated_again() -> None:
    assert broken([{"x": 2}], [{"x": 2}]) == []


def test_unchanged_item_of_a_list_with_keys_is_not_evaluated_again() -> None:
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}
    assert broken([{"x": 2}, {"x": 3}], [{"x": 2}], **keys) == ["[1]"]
