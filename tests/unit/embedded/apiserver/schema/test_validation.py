"""Validation, pruning and defaults by structural schemas."""

import copy
import json
import random
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.embedded.apiserver.schema import pruning, schemas, validation
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.stored_kinds import STORED_KINDS

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 2},
        "size": {"type": "integer", "minimum": 1, "maximum": 2},
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "port": {"x-kubernetes-int-or-string": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "words": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
        },
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
        "share": {"x-kubernetes-int-or-string": True, "format": "quantity"},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "limits": {"type": "object", "nullable": True, "additionalProperties": {"type": "string"}},
        "notes": {"type": "array", "items": {"type": "string", "nullable": True}},
    },
}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 3, 2**31, 2**63]),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from(["", "a", "b", "abc"]),
)
values = st.recursive(
    scalars,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from(["name", "x"]), below, max_size=2)
    ),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from([*sorted(SCHEMA["properties"]), "unknown"]), values, max_size=4)


QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def causes(obj: dict[str, Any], mode: validation.Mode = "complete") -> dict[str, str]:
    return {cause.field: cause.message for cause in validation.causes(obj, SCHEMA, mode)}


@pytest.mark.parametrize(
    ("obj", "path", "message"),
    [
        ({}, "name", "Required value"),
        ({"name": ""}, "name", 'Invalid value: "": name in body should be at least 1 chars long'),
        ({"name": "abc"}, "name", "Too long: may not be more than 2 bytes"),
        ({"name": 1}, "name", "Invalid value: 1: name in body must be of type string"),
        ({"size": 0}, "size", "Invalid value: 0: size in body should be greater than or equal to 1"),
        ({"size": 3}, "size", "Invalid value: 3: size in body should be less than or equal to 2"),
        ({"size": True}, "size", "Invalid value: true: size in body must be of type integer"),
        ({"size": 1.0}, "size", "Invalid value: 1.0: size in body must be of type integer"),
        ({"mode": "c"}, "mode", 'Unsupported value: "c": supported values: "a", "b"'),
        ({"port": 1.5}, "port", "Invalid value: 1.5: port in body must be of type integer or string"),
        ({"any": [{"x": 2**63}]}, "any[0].x", f"Invalid value: {2**63}: any[0].x in body must be an int64"),
        (
            {"labels": {"a/b": 1}},
            "labels[a/b]",
            "Invalid value: 1: labels[a/b] in body must be of type string",
        ),
        ({"words": []}, "words", "Invalid value: 0: words in body should have at least 1 items"),
        ({"words": ["a", "b", "c"]}, "words", "Too many: 3: must have at most 2 items"),
        ({"words": ["a", "a"]}, "words[1]", 'Duplicate value: "a"'),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "parts[1]", 'Duplicate value: {"name":"a"}'),
        ({"parts": [{}]}, "parts[0].name", "Required value"),
        ({"share": "x"}, "share", f'Invalid value: "x": {QUANTITY_RULE}'),
    ],
)
def test_a_broken_rule_is_reported_with_its_path(obj: dict[str, Any], path: str, message: str) -> None:
    assert causes(obj)[path] == message


def test_members_may_be_missing_from_a_partial_object_but_not_keys_of_list_maps() -> None:
    assert causes({"words": []}, "partial") == {}
    assert causes({"parts": [{}]}, "partial") == {"parts[0].name": "Required value"}


def test_unknown_fields_are_violations_of_a_sent_object_only() -> None:
    obj = {"name": "a", "odd": 1, "parts": [{"name": "a", "odd": 2}]}
    assert causes(obj) == causes(obj, "partial") == {}
    violations = validation.check(obj, SCHEMA, "sent")
    assert [cause.field for cause in validation.unknown_fields(violations)] == ["odd", "parts[0].odd"]


@given(objects)
@example({"any": [2**63]})
def test_pruning_changes_nothing_where_a_sent_object_has_no_violations(obj: dict[str, Any]) -> None:
    pruned = json.dumps(pruning.prune(obj, SCHEMA))
    if validation.check(obj, SCHEMA, "sent"):
        partial = validation.check(obj, SCHEMA, "partial")
        assert partial or pruned != json.dumps(obj)
    else:
        assert pruned == json.dumps(obj)


def test_pruning_keeps_a_null_when_the_schema_allows_it() -> None:
    obj = {"name": None, "limits": None, "notes": ["a", None], "words": ["a", None], "any": {"x": None}}
    kept = {"limits": None, "notes": ["a", None], "words": ["a"], "any": {}}
    assert pruning.prune(obj, SCHEMA) == kept


@given(objects)
def test_a_pruned_object_has_no_unknown_fields(obj: dict[str, Any]) -> None:
    assert not validation.unknown_fields(validation.check(pruning.prune(obj, SCHEMA), SCHEMA, "sent"))


WHOLE: dict[Kind, dict[str, Any]] = {
    kinds.DEPLOYMENT: {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"a": "b"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 2},
                        }
                    ]
                },
            },
        },
    },
    kinds.INFERENCE: {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Inference",
        "metadata": {"name": "i"},
        "spec": {
            "framework": "sklearn",
            "predictors": [{"name": "a", "modelVersion": "m", "trafficWeight": 3}],
        },
    },
}


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.kind)
def test_a_valid_object_has_no_violations(kind: Kind) -> None:
    for mode in get_args(validation.Mode):
        assert not validation.check(WHOLE[kind], STORED_KINDS.schema(kind), mode)


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.kind)
@given(st.randoms(use_true_random=False), values)
def test_violations_of_a_changed_part_are_at_or_below_it(kind: Kind, draw: random.Random, value: Any) -> None:
    obj = copy.deepcopy(WHOLE[kind])
    node: Any = obj
    path = ""
    while True:
        key = draw.choice(sorted(node) if isinstance(node, dict) else list(range(len(node))))
        path += schemas.path_step(key) if isinstance(node, dict) else f"[{key}]"
        if not node[key] or not isinstance(node[key], dict | list) or draw.random() < 0.3:
            break
        node = node[key]
    node[key] = value
    assert all(
        violation.path.startswith(path) or path.startswith(violation.path)
        for violation in validation.check(obj, STORED_KINDS.schema(kind))
    )


def test_unchanged_members_are_not_checked() -> None:
    assert not validation.causes({"name": "a", "size": "wrong"}, SCHEMA, unchanged={"size"})
    assert validation.causes({"size": 1}, SCHEMA, unchanged={"size"}), (
        "missing members are checked all the same"
    )


@pytest.mark.parametrize("mode", get_args(validation.Mode))
@pytest.mark.parametrize(
    ("type_", "valid", "wrong"), [("string", "a", 1), ("object", {}, "a"), ("array", [], "a")]
)
def test_null_is_valid_where_a_schema_allows_it(
    mode: validation.Mode, type_: str, valid: Any, wrong: Any
) -> None:
    schema = {"type": type_, "nullable": True}
    assert not validation.check(None, schema, mode)
    assert not validation.check(valid, schema, mode)
    assert validation.check(wrong, schema, mode)
    assert validation.check(None, {"type": type_}, mode)


@pytest.mark.parametrize(
    ("pattern", "value", "is_valid"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("^(a|b$)", "b\n", False),
        (r"^a\$", "a$b", True),
        (r"^[]$]+$", "]$", True),
        (r"^[^\]$]+$", "$", False),
    ],
)
def test_a_pattern_ends_where_the_value_ends_when_it_has_a_dollar(
    pattern: str, value: str, *, is_valid: bool
) -> None:
    violations = validation.check(value, {"type": "string", "pattern": pattern})
    assert (not violations) == is_valid


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ("YWJj\nYWJj\n", True),
        ("YWJj\r\nYQ=\n=\r\n", True),
        ("YWJj YWJj", False),
        ("YWJj\tYWJj", False),
        ("YWJ\n", False),
    ],
)
def test_base64_may_have_line_breaks_alone_when_it_is_checked(value: str, *, is_valid: bool) -> None:
    violations = validation.check(value, {"type": "string", "format": "byte"})
    assert (not violations) == is_valid
