"""What is said of managedFields without sets of paths is what the rules for all writes say."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.apply import claims, field_sets, managed_fields
from serving.embedded.apiserver.apply.managed_fields import Managers, Owner

NOW, THEN = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
ANN, BOB = Owner("Apply", "ann", "", "v1"), Owner("Apply", "bob", "status", "v1")
LOADER = Owner("Update", "loader", "", "v1")
PART: dict[str, Any] = {
    "type": "object",
    "properties": {
        "parts": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "x": {"type": "integer"}, "more": {"x-kubernetes-preserve-unknown-fields": True},
            }},
        },
        "ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
            }},
        },
        "words": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "args": {"type": "array", "items": {"type": "string"}},
        "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "size": {"type": "integer"},
    },
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"}, "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        }},
        "spec": PART,
        "status": PART,
    },
}  # fmt: skip


def _name(item: dict[str, Any]) -> str:
    return str(item["name"])


words = st.sampled_from(["a", "b", 'c"', "é"])
plain = st.recursive(
    words, lambda below: st.lists(below, max_size=2) | st.dictionaries(words, below, max_size=2)
)
items = st.fixed_dictionaries({"name": words}, optional={"x": st.integers(0, 2), "more": plain})
part = st.fixed_dictionaries(
    {},
    optional={
        "parts": st.lists(items, max_size=3, unique_by=_name),
        "ports": st.lists(
            st.fixed_dictionaries({"port": st.integers(1, 2)}, optional={"protocol": st.just("UDP")}),
            max_size=2,
            unique_by=lambda item: (item["port"], item.get("protocol")),
        ),
        "words": st.lists(words, max_size=2, unique=True),
        "args": st.lists(words, max_size=2),
        "selector": st.dictionaries(words, words, max_size=2),
        "size": st.integers(0, 2),
    },
)
metadata = st.fixed_dictionaries(
    {"name": st.just("n")},
    optional={
        "labels": st.dictionaries(words, words, max_size=2),
        "finalizers": st.lists(words, max_size=2, unique=True),
    },
)
wholes = st.fixed_dictionaries(
    {"apiVersion": st.just("v1")}, optional={"metadata": metadata, "spec": part, "status": part}
)
specs = st.fixed_dictionaries({}, optional={"metadata": metadata, "spec": part})
statuses = st.fixed_dictionaries({"status": part})


@given(wholes)
def test_a_tree_is_that_of_the_fields(obj: dict[str, Any]) -> None:
    expected = field_sets.encode(managed_fields.fields(obj, SCHEMA))
    assert repr(claims.tree(obj, SCHEMA)) == repr(expected), "in the same order, too"


@given(part, st.lists(items, min_size=2, max_size=3))
def test_items_with_one_key_are_one_in_a_tree(spec: dict[str, Any], same: list[dict[str, Any]]) -> None:
    obj = {"spec": {**spec, "parts": same}}
    assert claims.tree(obj, SCHEMA) == field_sets.encode(managed_fields.fields(obj, SCHEMA))


def by_the_rules(
    before: list[dict[str, Any]], live: dict[str, Any], config: dict[str, Any], owner: Owner
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    managers: Managers = managed_fields.read(before)[0]
    after = managed_fields.applied(managers, live, config, SCHEMA, owner, force=True)
    return after.object, managed_fields.write(after.managers, before, NOW)


def stored(spec: dict[str, Any], *statuses: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """An object whose spec the loader wrote and whose status BOB did, more than once."""
    entries, live = claims.created(spec, SCHEMA, LOADER, THEN), spec
    for status in statuses:
        managers = managed_fields.read(entries)[0]
        live, after = managed_fields.applied(managers, live, status, SCHEMA, BOB, force=True)
        entries = managed_fields.write(after, entries, THEN)
    return entries, live


@given(specs, statuses, statuses)
def test_an_apply_that_meets_nobody_says_what_the_rules_say(
    spec: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    entries, live = stored(spec, first)
    claimed = claims.applied(entries, live, second, SCHEMA, BOB, now=NOW)
    if claims.tree(second, SCHEMA) and entries:
        assert claimed is not None, "a status and a spec never meet"
    if claimed is not None:
        assert claimed == by_the_rules(entries, live, second, BOB)


@given(specs, statuses, wholes)
def test_whatever_is_said_is_what_the_rules_say(
    spec: dict[str, Any], status: dict[str, Any], config: dict[str, Any]
) -> None:
    entries, live = stored(spec, status)
    for owner in (ANN, BOB):
        claimed = claims.applied(entries, live, config, SCHEMA, owner, now=NOW)
        assert claimed is None or claimed == by_the_rules(entries, live, config, owner)


@given(specs)
def test_the_first_fields_are_the_writers(spec: dict[str, Any]) -> None:
    managers = managed_fields.updated({}, None, spec, SCHEMA, LOADER)
    assert claims.created(spec, SCHEMA, LOADER, NOW) == managed_fields.write(managers, None, NOW)
