"""No request is a 5xx, whatever is in it."""

import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


_fields = st.fixed_dictionaries(
    {}, optional={"metadata": _json, "spec": _json, "data": _json, "status": _json, "kind": _json}
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["configmaps", "pods", "services", "secrets", "events"]),
    method=st.sampled_from(["POST", "PUT", "PATCH"]),
    media=st.sampled_from(
        ["merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
    ),
    body=_fields | _json,
)
def test_no_body_is_a_500(client: httpx.Client, kind: str, method: str, media: str, body: Any) -> None:
    path = f"/api/v1/namespaces/default/{kind}" + ("" if method == "POST" else "/fuzzed?fieldManager=f")
    content = json.dumps(body)
    header = f"application/{media}" if method == "PATCH" else "application/json"
    answer = client.request(method, path, content=content, headers={"Content-Type": header})
    assert answer.status_code < 500, answer.text
    client.delete(f"/api/v1/namespaces/default/{kind}/fuzzed")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "includeObject",
                          "timeoutSeconds", "resourceVersionMatch", "sendInitialEvents"]),
    value=st.text(max_size=12),
    accept=st.sampled_from(["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "text/html;;,="]),
)  # fmt: skip
def test_no_query_is_a_500(client: httpx.Client, name: str, value: str, accept: str) -> None:
    answer = client.get("/api/v1/pods", params={name: value}, headers={"Accept": accept})
    assert answer.status_code < 500 or answer.status_code == 504, answer.text
