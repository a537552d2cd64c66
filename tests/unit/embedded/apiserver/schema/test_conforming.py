"""The quick test of an object agrees with the validation that names what is wrong."""

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.embedded.apiserver.schema import conforming, pruning, schemas, validation
from serving.resources import kinds
from serving.resources.kinds import Kind

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
            "type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set",
        },
        "parts": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
        "share": {"x-kubernetes-int-or-string": True, "format": "quantity"},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}  # fmt: skip

scalars = st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, 3, 2**31, 2**63]), st.sampled_from([1.0, 1.5]), st.sampled_from(["", "a", "b", "abc"]))  # fmt: skip
values = st.recursive(
    scalars,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from(["name", "x"]), below, max_size=2)
    ),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from([*sorted(SCHEMA["properties"]), "unknown"]), values, max_size=4)


@given(objects, st.booleans())
@example(obj={"any": [2**63]}, partial=False)
@example(obj={"any": {"x": [None, {"name": 2**63}]}}, partial=True)
def test_a_doubt_is_raised_wherever_something_is_wrong(obj: dict[str, Any], partial: bool) -> None:  # noqa: FBT001 drawn
    wrong = list(validation.check(obj, SCHEMA, partial=partial))
    assert conforming.broken(obj, SCHEMA, partial=partial) == wrong
    if conforming.test(SCHEMA, partial=partial)(obj):
        assert not wrong


@given(objects)
@example({"any": [2**63]})
def test_what_is_clean_is_read_as_it_is(obj: dict[str, Any]) -> None:
    unknown: list[str] = []
    read = pruning.read(obj, SCHEMA, unknown)
    same = not unknown and json.dumps(read) == json.dumps(obj)
    assert conforming.clean(obj, SCHEMA) <= (same and not list(validation.check(obj, SCHEMA, partial=True)))


WHOLE: dict[Kind, dict[str, Any]] = {
    kinds.DEPLOYMENT: {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{
                "name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 2},
            }]}},
        },
    },
    kinds.INFERENCE: {
        "apiVersion": "slipway.dev/v1alpha1", "kind": "Inference", "metadata": {"name": "i"},
        "spec": {"framework": "sklearn", "predictors": [{"name": "a", "modelVersion": "m", "trafficWeight": 3}]},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.kind)
def test_what_is_right_raises_no_doubt(kind: Kind) -> None:
    assert conforming.test(schemas.of(kind), partial=True)(WHOLE[kind])
    assert conforming.clean(WHOLE[kind], schemas.of(kind))


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.kind)
@given(st.randoms(use_true_random=False), values)
def test_whatever_is_put_anywhere_both_say_the_same(kind: Kind, draw: random.Random, value: Any) -> None:
    obj = copy.deepcopy(WHOLE[kind])
    node: Any = obj
    while True:
        key = draw.choice(sorted(node) if isinstance(node, dict) else list(range(len(node))))
        if not node[key] or not isinstance(node[key], dict | list) or draw.random() < 0.3:
            break
        node = node[key]
    node[key] = value
    assert conforming.broken(obj, schemas.of(kind)) == list(validation.check(obj, schemas.of(kind)))


def test_known_parts_are_not_looked_into() -> None:
    assert not conforming.broken({"name": "a", "size": "wrong"}, SCHEMA, known={"size"})
    assert conforming.broken({"size": 1}, SCHEMA, known={"size"}), "what is missing is missing all the same"
