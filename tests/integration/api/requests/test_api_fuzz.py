"""No request gets a 5xx; a refused one gets a Status, and stores nothing."""

import itertools
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.strategies import good, json_patches, objects, odd, strategic_patches
from tests.rig import fuzzing

numbers = itertools.count()
fuzzed = fuzzing.fuzzed(8)
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


def request(client: httpx.Client, method: str, path: str, media: str, body: Any) -> httpx.Response:
    content = json.dumps(body).encode("utf-8", "surrogatepass")
    response = client.request(method, path, content=content, headers={"Content-Type": media})
    assert response.status_code < 500, (method, path, body, response.text)
    if response.status_code >= 400:
        status = response.json()
        assert (status["kind"], status["status"], status["code"]) == (
            "Status",
            "Failure",
            response.status_code,
        )
        assert status["reason"]
        assert status["message"]
        if response.status_code == 422 and media != JSON_PATCH:
            assert all(cause["message"] for cause in status["details"]["causes"])
    return response


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)
@fuzzed
@given(data=st.data())
def test_a_refused_write_changes_nothing(client: httpx.Client, kind: Kind, data: st.DataObject) -> None:
    collection, fresh = kind.path("default" if kind.namespaced else None), f"fuzzed-{next(numbers)}"
    created = request(
        client, "POST", collection, "application/json", data.draw(objects(kind, good(kind, fresh)))
    )
    stored = client.get(f"{collection}/{fresh}")
    if created.status_code >= 400:
        assert stored.status_code == 404
        created = request(client, "POST", collection, "application/json", good(kind, fresh))
        assert created.status_code in (201, 409), created.text
    name = created.json().get("metadata", {}).get("name", fresh)
    path = f"{collection}/{name}"
    for method, media, bodies in (
        ("PUT", "application/json", objects(kind, good(kind, name))),
        ("PATCH", MERGE, odd),
        ("PATCH", JSON_PATCH, json_patches),
        ("PATCH", STRATEGIC, strategic_patches(kind, good(kind))),
        ("PATCH", APPLY, objects(kind, good(kind, name))),
    ):
        before = client.get(path)
        response = request(client, method, f"{path}?fieldManager=fuzz", media, data.draw(bodies))
        after = client.get(path)
        # The status of a namespace changes when it is deleted.
        if response.status_code >= 400 and kind != kinds.NAMESPACE:
            assert after.content == before.content
    if kind.scale:
        request(client, "PUT", f"{path}/scale", "application/json", data.draw(odd))
    client.request("DELETE", path, params={"gracePeriodSeconds": "0"})


@fuzzing.fuzzed(120)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    kind=st.sampled_from(kinds.ALL),
    name=st.sampled_from(["", "a", "..", "/", "%", "ä", "\x00", "a b", "x" * 300]),
    sub=st.sampled_from([None, "status", "scale", "log", "exec", ""]),
    content=st.binary(max_size=30),
    media=st.sampled_from(
        [
            MERGE,
            JSON_PATCH,
            STRATEGIC,
            APPLY,
            "application/json",
            "application/yaml",
            "text/plain",
            "application/vnd.kubernetes.protobuf",
            "",
        ]
    ),
    query=st.dictionaries(
        st.sampled_from(
            [
                "limit",
                "continue",
                "labelSelector",
                "fieldSelector",
                "resourceVersion",
                "includeObject",
                "timeoutSeconds",
                "resourceVersionMatch",
                "sendInitialEvents",
                "dryRun",
                "fieldManager",
                "fieldValidation",
                "force",
                "gracePeriodSeconds",
                "propagationPolicy",
                "orphanDependents",
                "tailLines",
                "follow",
                "previous",
            ],
        ),
        st.sampled_from(["", "1", "-1", "true", "x", "\x00", "ä", "a=b", "a in (", "All", "9" * 30]),
        max_size=3,
    ),
    accept=st.sampled_from(
        ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "text/html;;,="]
    ),
)
def test_no_request_is_a_500(
    client: httpx.Client,
    *,
    method: str,
    kind: Kind,
    name: str,
    sub: str | None,
    content: bytes,
    media: str,
    query: dict[str, str],
    accept: str,
) -> None:
    path = httpx.URL("http://x", path=kind.path("fuzz" if kind.namespaced else None)).path
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    path += (f"/{quoted}" if name else "") + (f"/{sub}" if sub is not None else "")
    headers = {"Accept": accept, "Content-Type": media}
    response = client.request(method, path, params=query, content=content, headers=headers)
    assert response.status_code < 500 or response.status_code == 504, (method, path, query, response.text)
    if response.status_code >= 400:
        assert response.json()["kind"] == "Status"
