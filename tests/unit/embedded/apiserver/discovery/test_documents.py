"""Schemas, discovery and OpenAPI: documents that are derived from the kinds."""

import contextlib
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import api_groups, openapi
from serving.embedded.apiserver.handlers import documents
from serving.resources import kinds
from tests.objects.stored_kinds import SERVED_KINDS, STORED_KINDS

ROOT = Path(__file__).parents[5]


def test_the_checked_in_schemas_are_those_of_the_client_library() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_builtin_schemas.py"))
    assert tool["TARGET"].read_text(encoding="utf-8") == tool["generate"]()


def test_legacy_and_aggregated_discovery_agree() -> None:
    aggregated = set()
    for core in (True, False):
        for group in api_groups.aggregated(SERVED_KINDS, core)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                for entry in version["resources"]:
                    aggregated.add((name, version["version"], entry["resource"]))
                    aggregated |= {
                        (name, version["version"], f"{entry['resource']}/{sub['subresource']}")
                        for sub in entry.get("subresources", ())
                    }
    legacy = set()
    for group, version in {(kind.group, kind.version) for kind in SERVED_KINDS}:
        listed = api_groups.resources(SERVED_KINDS, group, version)
        assert listed is not None
        legacy |= {(group, version, entry["name"]) for entry in listed["resources"]}
    assert aggregated == legacy
    assert api_groups.group(SERVED_KINDS, "nothing.dev") is None
    assert api_groups.resources(SERVED_KINDS, "apps", "v9") is None


def test_openapi_documents_define_all_references_and_describe_every_kind() -> None:
    described = set()
    for name in openapi.group_versions(STORED_KINDS):
        document = openapi.document(STORED_KINDS, name)
        assert document is not None
        text = json.dumps(document)
        schemas = document["components"]["schemas"]
        for reference in set(_references(document)):
            assert reference.removeprefix("#/components/schemas/") in schemas, reference
        for body in schemas.values():
            described |= {(g["group"], g["kind"]) for g in body.get("x-kubernetes-group-version-kind", ())}
        assert '"fieldValidation"' in text
    assert {(kind.group, kind.kind) for kind in kinds.ALL} <= described
    assert openapi.document(STORED_KINDS, "apis/nothing/v1") is None
    assert openapi.index(STORED_KINDS)["paths"].keys() == set(openapi.group_versions(STORED_KINDS))


@pytest.mark.parametrize(
    "path", ["/openapi/v3/apis/none-{}/v1", "/openapi/v3{slashes}/api/v1", "{slashes}/apis"]
)
def test_no_cache_grows_when_unknown_paths_of_documents_are_requested(path: str) -> None:
    for name in openapi.group_versions(STORED_KINDS):
        openapi.document(STORED_KINDS, name)
    documents.answer(STORED_KINDS, _request("GET", "/apis"))
    documents.answer(STORED_KINDS, _request("GET", "/openapi/v3/api/v1"))

    def cached() -> int:
        values = [*vars(openapi).values(), *vars(documents).values()]
        return sum(value.cache_info().currsize for value in values if hasattr(value, "cache_info"))

    before = cached()
    for number in range(1, 6):
        with contextlib.suppress(errors.NotFound):
            documents.answer(STORED_KINDS, _request("GET", path.format(number, slashes="/" * number)))
    assert cached() == before


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("path", "code"),
    [("/openapi/v3", 405), ("/openapi/v3/api/v1", 405), ("/openapi/v3/api/v2", 404), ("/version", 405)],
)
def test_a_write_of_a_document_is_not_allowed(method: str, path: str, code: int) -> None:
    with pytest.raises(errors.ApiError) as refused:
        documents.answer(STORED_KINDS, _request(method, path))
    assert refused.value.code == code


def _request(method: str, path: str) -> Request:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    return Request({**scope, "server": ("localhost", 80), "scheme": "http"})


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [reference for child in node for reference in _references(child)]
    if not isinstance(node, dict):
        return []
    direct = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return direct + [reference for child in node.values() for reference in _references(child)]


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)
def test_every_schema_describes_object_metadata(kind: kinds.Kind) -> None:
    meta = STORED_KINDS.schema(kind)["properties"]["metadata"]
    assert {"name", "labels", "finalizers", "ownerReferences", "managedFields"} <= meta["properties"].keys()


def test_an_error_becomes_a_status() -> None:
    error = errors.Invalid(
        422, "Invalid", "no", [errors.Cause("spec.x", "Required value", "FieldValueRequired")]
    )
    status = status_errors.to_status(error, kinds.DEPLOYMENT, "web")
    assert (status["kind"], status["code"], status["reason"], status["status"]) == (
        "Status",
        422,
        "Invalid",
        "Failure",
    )
    assert status["details"] == {
        "group": "apps",
        "kind": "deployments",
        "name": "web",
        "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}],
    }
    assert errors.from_status(422, status).causes == error.causes
