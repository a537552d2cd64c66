"""Labels of requests: known beforehand, whatever a client asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.handlers import request_metrics
from serving.embedded.apiserver.handlers.request_metrics import RequestLabels
from serving.embedded.apiserver.requests import paths

VERBS = {"GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION", "OTHER"}
PODS = ("", "v1", "pods")


@pytest.mark.parametrize(
    ("method", "path", "watches", "expected"),
    [
        ("GET", "/api/v1/pods", False, RequestLabels("LIST", *PODS)),
        ("GET", "/api/v1/pods", True, RequestLabels("WATCH", *PODS)),
        ("GET", "/api/v1/namespaces/a/pods/b", False, RequestLabels("GET", *PODS)),
        ("GET", "/api/v1/namespaces/a/pods/b/log", False, RequestLabels("GET", *PODS, "log")),
        ("POST", "/api/v1/namespaces/a/pods/b/exec", False, RequestLabels("POST", *PODS, "other")),
        ("DELETE", "/api/v1/namespaces/a/pods", False, RequestLabels("DELETECOLLECTION", *PODS)),
        ("PATCH", "/api/v1/namespaces/a", False, RequestLabels("PATCH", "", "v1", "namespaces")),
        ("GET", "/api/v1/nodes", False, RequestLabels("LIST", "", "v1", "nodes")),
        ("GET", "/apis/apps/v1/nothings", False, RequestLabels("GET")),
        ("GET", "/version", False, RequestLabels("GET")),
        ("BREW", "/version", False, RequestLabels("OTHER")),
    ],
)
def test_a_request_is_named_by_its_verb_and_resource(
    method: str, path: str, *, watches: bool, expected: RequestLabels
) -> None:
    assert request_metrics.labels(method, paths.split(path), watches=watches) == expected


words = st.sampled_from(
    ["", "api", "apis", "v1", "apps", "namespaces", "pods", "exec", "log", "deployments", "x"]
)


@given(
    method=st.text(max_size=6), parts=st.lists(words | st.text(max_size=4), max_size=8), watches=st.booleans()
)
def test_no_request_adds_a_label_value(method: str, parts: list[str], *, watches: bool) -> None:
    found = request_metrics.labels(method, paths.split("/" + "/".join(parts)), watches=watches)
    assert found.verb in VERBS
    served = {(kind.group, kind.version, kind.plural) for kind in api_groups.SERVED} | {("", "", "")}
    assert (found.group, found.version, found.resource) in served
    assert found.subresource in {"", "log", "scale", "status", "other"}
