"""Field trees agree with sets of paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.apply import field_trees
from serving.embedded.apiserver.apply.field_trees import Path
from tests.reference.fields import leaves

PART: dict[str, Any] = {
    "type": "object",
    "properties": {
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "x": {"type": "integer"},
                    "more": {"x-kubernetes-preserve-unknown-fields": True},
                },
            },
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                },
            },
        },
        "words": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "args": {"type": "array", "items": {"type": "string"}},
        "selector": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "additionalProperties": {"type": "string"},
        },
        "size": {"type": "integer"},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "metadata": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        },
        "spec": PART,
        "status": PART,
    },
}


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


def paths(tree: dict[str, Any]) -> set[Path]:
    return set(field_trees.paths(tree))


def fields(obj: dict[str, Any]) -> dict[str, Any]:
    return field_trees.fields(obj, SCHEMA)


@given(wholes)
def test_the_fields_of_an_object_are_its_leaves(obj: dict[str, Any]) -> None:
    assert paths(fields(obj)) == leaves(obj, SCHEMA).keys()


@given(wholes)
def test_trees_are_sorted_and_well_formed(obj: dict[str, Any]) -> None:
    tree = fields(obj)
    assert repr(field_trees.well_formed(tree)) == repr(tree)
    assert repr(field_trees.union(tree, tree)) == repr(tree)


@given(part, st.lists(items, min_size=2, max_size=3))
def test_items_with_one_key_have_their_fields_together(
    spec: dict[str, Any], same: list[dict[str, Any]]
) -> None:
    obj = {"spec": {**spec, "parts": same}}
    assert paths(fields(obj)) == leaves(obj, SCHEMA).keys()


@given(wholes, wholes)
def test_operations_are_those_on_sets_of_paths(one: dict[str, Any], two: dict[str, Any]) -> None:
    left, right = fields(one), fields(two)
    assert paths(field_trees.union(left, right)) == paths(left) | paths(right)
    assert paths(field_trees.intersection(left, right)) == paths(left) & paths(right)
    assert paths(field_trees.without(left, right)) == paths(left) - paths(right)


@given(wholes, wholes)
def test_a_difference_is_that_of_the_leaves(one: dict[str, Any], two: dict[str, Any]) -> None:
    before, after = leaves(one, SCHEMA), leaves(two, SCHEMA)
    difference = field_trees.difference(one, two, SCHEMA)
    assert paths(difference.added) == after.keys() - before.keys()
    assert paths(difference.removed) == before.keys() - after.keys()
    common = before.keys() & after.keys()
    assert paths(difference.modified) == {path for path in common if before[path] != after[path]}


def test_malformed_parts_of_a_client_tree_are_dropped() -> None:
    sent = {"f:spec": {".": {"f:x": {}}, "f:a": {}}, "f:b": 3, "f:c": {".": {}}}
    assert field_trees.well_formed(sent) == {"f:spec": {".": {}, "f:a": {}}, "f:c": {}}


@pytest.mark.parametrize(
    "key",
    ["k:x", "k:[1]", "k:1", "k:", "v:", "v:x", 'v:"\\ud800"', "i:0", "x", "", 'k:{"a":NaN}'],
)
def test_key_of_a_client_tree_is_dropped_when_it_is_no_path_element(key: str) -> None:
    sent = {"f:a": {key: {"f:x": {}}, "f:b": {}}}
    assert field_trees.well_formed(sent) == {"f:a": {"f:b": {}}}


@pytest.mark.parametrize("key", ["f:", "f:x", "v:1", 'v:"a"', 'k:{"name":"a"}', "k:{}"])
def test_path_elements_of_a_client_tree_are_kept_and_described(key: str) -> None:
    sent = {"f:a": {key: {"f:x": {}}}}
    assert field_trees.well_formed(sent) == sent
    assert field_trees.describe(("f:a", key, "f:x")).startswith(".a")
