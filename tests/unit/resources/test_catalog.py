"""The schemas of our kinds are structural, as a cluster requires of CRDs."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from serving.resources import catalog, definitions, kinds

ALLOWED = {
    "type",
    "description",
    "properties",
    "items",
    "required",
    "enum",
    "default",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "minLength",
    "maxLength",
    "minItems",
    "nullable",
    "maxItems",
    "additionalProperties",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_schema_is_structural_for_every_kind(definition: definitions.Definition) -> None:
    for path, node in nodes(definitions.schema(definition)):
        assert set(node) <= ALLOWED, path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        if node.get("x-kubernetes-list-type") == "map":
            for key in node["x-kubernetes-list-map-keys"]:
                assert key in node["items"]["properties"], path


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_every_list_declares_its_list_type(definition: definitions.Definition) -> None:
    for path, node in nodes(definitions.schema(definition)):
        if node.get("type") == "array":
            assert node.get("x-kubernetes-list-type"), path


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_no_date_time_field_has_a_default(definition: definitions.Definition) -> None:
    for path, node in nodes(definitions.schema(definition)):
        assert node.get("format") != "date-time" or "default" not in node, path


def test_every_own_kind_has_a_definition() -> None:
    assert {d.kind for d in catalog.DEFINITIONS} == set(kinds.OWN)


def test_no_two_kinds_share_a_name() -> None:
    words = [word for kind in kinds.ALL for word in {kind.plural, kind.singular, *kind.short}]
    assert len(words) == len(set(words))


def rules_of(definition: definitions.Definition) -> Iterator[tuple[str, dict[str, Any], str, bool]]:
    """Yield path, schema, rule, and whether every list on the path has a maximum length."""

    def below(
        node: dict[str, Any], path: str, *, bounded: bool
    ) -> Iterator[tuple[str, dict[str, Any], str, bool]]:
        for rule in node.get("x-kubernetes-validations", ()):
            yield path, node, rule["rule"], bounded
        for name, child in node.get("properties", {}).items():
            yield from below(child, f"{path}.{name}", bounded=bounded)
        if "items" in node:
            yield from below(node["items"], f"{path}[]", bounded=bounded and "maxItems" in node)

    yield from below(definitions.schema(definition), definition.kind.kind, bounded=True)


def schema_at(node: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split(".")[1:]:
        node = node["properties"][name]
    return node


@pytest.mark.parametrize("definition", catalog.DEFINITIONS, ids=lambda d: d.kind.kind)
def test_every_validation_rule_has_a_bounded_cost(definition: definitions.Definition) -> None:
    """A cluster refuses a CRD whose rules could cost more than a budget, estimated from maximum lengths.

    A list or text without a maximum counts as a whole request (k8s.io/apiextensions-apiserver,
    pkg/apiserver/schema/cel).
    """
    for path, node, rule, bounded in rules_of(definition):
        assert bounded, f"{path}: a list above {rule!r} has no maxItems"
        for over in re.findall(r"\b(self(?:\.\w+)+)\.(?:all|exists|exists_one|filter|map)\(", rule):
            assert "maxItems" in schema_at(node, over), f"{path}: {over} in {rule!r}"
        for text in re.findall(r"\b(self(?:\.\w+)+)\.(?:matches|contains|startsWith|endsWith)\(", rule):
            assert "maxLength" in schema_at(node, text), f"{path}: {text} in {rule!r}"
        for item in re.findall(
            r"\b(?!self|oldSelf)\w+\.\w+\.(?:matches|contains|startsWith|endsWith)\(", rule
        ):
            pytest.fail(f"{path}: {item} is evaluated for each item in {rule!r}")


def test_only_kinds_that_have_a_status_have_its_subresource() -> None:
    for definition in catalog.DEFINITIONS:
        version = definitions.crd(definition)["spec"]["versions"][0]
        in_schema = "status" in version["schema"]["openAPIV3Schema"]["properties"]
        has_status = definition.status is not None
        assert definition.kind.status == has_status == in_schema == ("subresources" in version)
