"""Our kinds' schemas are structural, as a cluster demands of CRDs."""

from collections.abc import Iterator
from typing import Any

import pytest

from serving.resources import catalog, kinds

ALLOWED = {
    "type", "description", "properties", "items", "required", "enum", "default", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "minLength", "maxLength", "minItems", "maxItems", "additionalProperties", "x-kubernetes-validations",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_schema_is_structural_for_every_kind(definition: catalog.Definition) -> None:
    for path, node in nodes(catalog.schema(definition)):
        assert set(node) <= ALLOWED, path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        if node.get("x-kubernetes-list-type") == "map":
            for key in node["x-kubernetes-list-map-keys"]:
                assert key in node["items"]["properties"], path


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_every_list_says_how_it_merges(definition: catalog.Definition) -> None:
    for path, node in nodes(catalog.schema(definition)):
        if node.get("type") == "array":
            assert node.get("x-kubernetes-list-type"), path


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_no_time_has_a_default_as_an_empty_text_is_none(definition: catalog.Definition) -> None:
    for path, node in nodes(catalog.schema(definition)):
        assert node.get("format") != "date-time" or "default" not in node, path


def test_every_own_kind_has_a_definition() -> None:
    assert {d.kind for d in catalog.DEFINITIONS} == set(kinds.OWN)


def test_no_two_kinds_answer_to_the_same_word() -> None:
    words = [word for kind in kinds.ALL for word in {kind.plural, kind.singular, *kind.short}]
    assert len(words) == len(set(words))
