"""Server-side apply: ownership of fields, as properties over small objects."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.embedded.apiserver.apply import field_trees, managed_fields, merging
from serving.embedded.apiserver.apply.field_trees import Path
from serving.embedded.apiserver.apply.managed_fields import Applied, Owner
from tests.reference.fields import leaves, prefixes

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "metadata": {
            "type": "object",
            "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        },
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "color": {"type": "string"},
                "args": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
                "selector": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "x-kubernetes-map-type": "atomic",
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "x": {"type": "integer"},
                            "y": {"type": "integer"},
                        },
                    },
                },
            },
        },
    },
}
ANN, BOB = Owner("Apply", "ann", "", "v1"), Owner("Apply", "bob", "", "v1")

words = st.sampled_from(["a", "b", "c"])
numbers = st.integers(0, 2)
part = st.fixed_dictionaries({"name": words}, optional={"x": numbers, "y": numbers})
parts = st.lists(part, max_size=3, unique_by=lambda item: item["name"])
spec = st.fixed_dictionaries(
    {},
    optional={
        "size": numbers,
        "color": words,
        "args": st.lists(words, max_size=2),
        "selector": st.dictionaries(words, words, max_size=2),
        "parts": parts,
    },
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(words, words, max_size=3),
        "finalizers": st.lists(words, max_size=2, unique=True),
    },
)
configurations = st.fixed_dictionaries({"metadata": metadata, "spec": spec})


NOW = "2026-01-02T00:00:00Z"


def apply(state: Applied, owner: Owner, config: dict[str, Any], *, force: bool = True) -> Applied:
    return managed_fields.applied(state.entries, state.object, config, SCHEMA, owner, force=force, now=NOW)


def values(obj: dict[str, Any]) -> dict[Path, Any]:
    return {path: value for path, value in leaves(obj, SCHEMA).items() if path != ("f:metadata",)}


def owned(state: Applied, owner: Owner) -> set[Path]:
    """Return the fields that managedFields gives to the owner."""
    entry = next((entry for entry in state.entries if entry["manager"] == owner.manager), {})
    return set(field_trees.paths(entry.get("fieldsV1", {})))


EMPTY = Applied({"metadata": {}, "spec": {}}, [])


@given(configurations, configurations)
def test_applying_changes_nothing_that_was_passed_in(config: dict[str, Any], other: dict[str, Any]) -> None:
    before = apply(EMPTY, BOB, other)
    copies = copy.deepcopy((before, config))
    apply(before, ANN, config)
    assert (before, config) == copies


@given(configurations, configurations)
def test_applying_the_same_again_changes_nothing(first: dict[str, Any], other: dict[str, Any]) -> None:
    once = apply(apply(EMPTY, BOB, other), ANN, first)
    again = apply(once, ANN, first, force=False)
    assert values(again.object) == values(once.object)
    assert again.entries == once.entries


@given(configurations, configurations)
def test_applied_fields_have_their_values_and_are_owned(
    config: dict[str, Any], other: dict[str, Any]
) -> None:
    after = apply(apply(EMPTY, BOB, other), ANN, config)
    expected = values(config)
    assert owned(after, ANN) == expected.keys()
    empty = [path for path, value in expected.items() if value in ({}, [])]
    for path, value in expected.items():
        if path not in empty:
            assert values(after.object)[path] == value


@given(configurations, configurations)
def test_fields_given_up_are_removed_unless_another_manager_owns_them(
    config: dict[str, Any], other: dict[str, Any]
) -> None:
    both = apply(apply(EMPTY, BOB, other), ANN, config)
    after = apply(both, ANN, {})
    remaining = {path for path, value in values(after.object).items() if value not in ({}, [])}
    assert remaining <= prefixes(owned(both, BOB))
    for path in owned(both, BOB):
        assert values(after.object).get(path) == values(both.object).get(path)


@given(configurations, configurations)
def test_without_force_no_owned_field_ever_changes(config: dict[str, Any], other: dict[str, Any]) -> None:
    before = apply(EMPTY, BOB, other)
    try:
        after = apply(before, ANN, config, force=False)
    except errors.Conflict as conflict:
        causes = conflict.causes
    else:
        fields = values(after.object)
        kept = {path: value for path, value in values(before.object).items() if value not in ({}, [])}
        assert all(fields.get(path) == value for path, value in kept.items())
        return
    assert causes
    assert all('conflict with "bob"' in cause.message for cause in causes)


@given(configurations, configurations)
def test_managers_of_disjoint_fields_commute(one: dict[str, Any], two: dict[str, Any]) -> None:
    both = prefixes(set(values(one))) & prefixes(set(values(two)))
    if both & (values(one).keys() | values(two).keys()):
        return
    left = apply(apply(EMPTY, ANN, one, force=False), BOB, two, force=False)
    right = apply(apply(EMPTY, BOB, two, force=False), ANN, one, force=False)
    assert values(left.object) == values(right.object)
    assert left.entries == right.entries


@given(configurations, configurations)
def test_a_plain_write_takes_over_exactly_what_it_changes(one: dict[str, Any], two: dict[str, Any]) -> None:
    before = apply(EMPTY, ANN, one)
    writer = Owner("Update", "writer", "", "v1")
    entries = managed_fields.updated(before.entries, before.object, two, SCHEMA, writer, now=NOW)
    after = Applied(two, entries)
    for path, value in values(two).items():
        changed = values(before.object).get(path, object()) != value
        assert (path in owned(after, writer)) == changed
        assert not (changed and path in owned(after, ANN))
    assert owned(after, ANN) <= values(two).keys()


@given(configurations)
def test_the_fields_of_a_new_object_are_its_writers(config: dict[str, Any]) -> None:
    after = Applied(config, managed_fields.created(config, SCHEMA, ANN, NOW))
    assert owned(after, ANN) == values(config).keys()


def test_an_entry_changes_only_with_its_fields() -> None:
    first = apply(EMPTY, BOB, {"spec": {"size": 1}})
    before = Applied(first.object, [{**entry, "time": "2026-01-01T00:00:00Z"} for entry in first.entries])
    after = apply(before, ANN, {"spec": {"color": "a"}})
    assert [entry["time"] for entry in after.entries if entry["manager"] == "bob"] == ["2026-01-01T00:00:00Z"]


def test_shared_fields_stay_until_the_last_owner_gives_up() -> None:
    config = {"metadata": {"labels": {"a": "b"}}}
    both = apply(apply(EMPTY, ANN, config), BOB, config, force=False)
    given_up = apply(both, ANN, {})
    assert given_up.object["metadata"]["labels"] == {"a": "b"}
    assert "labels" not in apply(given_up, BOB, {}).object.get("metadata", {})


def test_a_map_that_loses_its_last_owned_field_goes_with_its_defaults() -> None:
    state = apply(EMPTY, ANN, {"spec": {"parts": [{"name": "a", "x": 1}]}})
    state.object["spec"]["parts"][0]["y"] = 7
    assert "parts" not in (apply(state, ANN, {"spec": {}}).object.get("spec") or {})


def test_an_item_goes_as_a_whole_when_others_own_only_fields_of_it() -> None:
    state = apply(EMPTY, ANN, {"spec": {"size": 1, "parts": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]}})
    patched = copy.deepcopy(state.object)
    patched["spec"]["parts"][1]["x"] = 2
    writer = Owner("Update", "writer", "", "v1")
    entries = managed_fields.updated(state.entries, state.object, patched, SCHEMA, writer, now=NOW)
    config = {"spec": {"size": 1, "parts": [{"name": "a", "x": 1}]}}
    after = apply(Applied(patched, entries), ANN, config, force=False)
    assert after.object["spec"]["parts"] == [{"name": "a", "x": 1}]
    assert not owned(after, writer)


def test_a_conflict_names_manager_and_field() -> None:
    state = apply(EMPTY, BOB, {"spec": {"parts": [{"name": "a", "x": 1}]}})
    with pytest.raises(errors.Conflict) as caught:
        apply(state, ANN, {"spec": {"parts": [{"name": "a", "x": 2}]}}, force=False)
    (cause,) = caught.value.causes
    assert (cause.field, cause.message, cause.reason) == (
        '.spec.parts[name="a"].x',
        'conflict with "bob" using v1',
        "FieldManagerConflict",
    )


def test_items_keep_the_order_of_the_configuration_and_others_their_place() -> None:
    live = [{"name": "a"}, {"name": "z"}, {"name": "b"}]
    schema = SCHEMA["properties"]["spec"]["properties"]["parts"]
    merged = merging.merge(live, [{"name": "b"}, {"name": "a"}], schema)
    assert [item["name"] for item in merged] == ["b", "a", "z"]
    kept = merging.merge(live, [{"name": "a"}, {"name": "b"}, {"name": "n"}], schema)
    assert [item["name"] for item in kept] == ["a", "z", "b", "n"]


def test_null_stays_when_a_field_beside_it_is_released() -> None:
    stored = {
        "spec": {"color": None, "size": 1, "parts": [{"name": "a", "x": None, "y": 1}]},
        "metadata": {"labels": {"l": None, "m": "1"}},
    }
    released = {
        "f:spec": {"f:size": {}, "f:parts": {'k:{"name":"a"}': {"f:y": {}}}},
        "f:metadata": {"f:labels": {"f:m": {}}},
    }
    assert merging.remove(stored, released, SCHEMA) == {
        "spec": {"color": None, "parts": [{"name": "a", "x": None}]},
        "metadata": {"labels": {"l": None}},
    }


def test_null_stays_where_the_released_fields_were_below_it() -> None:
    released = {"f:metadata": {"f:labels": {"f:m": {}}}}
    stored = {"spec": {"size": 1}, "metadata": {"labels": None}}
    assert merging.remove(stored, released, SCHEMA) == stored


def test_map_is_removed_when_its_last_field_is_released() -> None:
    released = {"f:metadata": {"f:labels": {"f:m": {}}}}
    stored = {"spec": {"size": 1}, "metadata": {"labels": {"m": "1"}}}
    assert merging.remove(stored, released, SCHEMA) == {"spec": {"size": 1}}


def test_other_managers_null_survives_an_apply_that_releases_a_field() -> None:
    bob = managed_fields.applied([], {}, {"spec": {"color": None}}, SCHEMA, BOB, force=False, now="t")
    first, second = {"spec": {"size": 1, "selector": {"a": "b"}}}, {"spec": {"size": 1}}
    ann = managed_fields.applied(bob.entries, bob.object, first, SCHEMA, ANN, force=False, now="t")
    ann = managed_fields.applied(ann.entries, ann.object, second, SCHEMA, ANN, force=False, now="t")
    assert ann.object == {"spec": {"size": 1, "color": None}}
