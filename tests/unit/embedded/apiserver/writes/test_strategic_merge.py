"""Strategic merge patch, on the schema of Deployments."""

from typing import Any

import pytest

from serving import errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.writes import strategic_merge
from serving.resources import kinds

POD_SPEC = schemas.definition_of("PodSpec")
BASE: dict[str, Any] = {
    "containers": [
        {
            "name": "a",
            "image": "a:1",
            "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
            "args": ["p"],
        },
        {"name": "b", "image": "b:1"},
    ],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "nodeSelector": {"a": "b"},
}


def merged(patch: dict[str, Any]) -> dict[str, Any]:
    before = schemas.clone(BASE)
    result = strategic_merge.merge(before, patch, POD_SPEC)
    assert before == BASE
    return result


def test_items_merge_by_their_key_and_atomic_lists_are_replaced() -> None:
    result = merged(
        {"containers": [{"name": "a", "image": "a:2", "args": ["q"], "env": [{"name": "X", "value": "9"}]}]}
    )
    assert result["containers"][0] == {
        "name": "a",
        "image": "a:2",
        "args": ["q"],
        "env": [{"name": "X", "value": "9"}, {"name": "Y", "value": "2"}],
    }
    assert result["containers"][1] == BASE["containers"][1]


def test_an_item_is_deleted_by_its_key() -> None:
    assert [c["name"] for c in merged({"containers": [{"name": "a", "$patch": "delete"}]})["containers"]] == [
        "b"
    ]


def test_the_replace_directive_replaces_a_list_or_a_map() -> None:
    assert merged({"containers": [{"$patch": "replace"}, {"name": "z"}]})["containers"] == [{"name": "z"}]
    assert merged({"nodeSelector": {"$patch": "replace", "c": "d"}})["nodeSelector"] == {"c": "d"}


def test_set_element_order_sets_the_order_of_items() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
        "containers": [{"name": "a", "image": "x"}],
    }
    assert [c["name"] for c in merged(patch)["containers"]] == ["b", "a"]


def test_retain_keys_removes_other_keys() -> None:
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    assert merged(patch)["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_members_are_deleted_from_a_list_of_scalars() -> None:
    meta = schemas.definition_of("ObjectMeta")
    result = strategic_merge.merge(
        {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, meta
    )
    assert result == {"finalizers": ["b"]}
    assert strategic_merge.merge({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, meta) == {
        "finalizers": ["a", "b"]
    }


def test_null_removes_a_field() -> None:
    assert "nodeSelector" not in merged({"nodeSelector": None})


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(errors.ApiError, match="merge key"):
        merged({"containers": [{"image": "x"}]})


def test_every_built_in_list_map_merges_strategically_too() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("x-kubernetes-list-type") == "map":
                assert node["x-kubernetes-patch-merge-key"] in node["x-kubernetes-list-map-keys"]
            for child in node.values():
                walk(child)

    for kind in kinds.BUILTIN:
        walk(schemas.of_builtin(kind))
