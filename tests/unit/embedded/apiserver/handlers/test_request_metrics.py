"""Requests are counted under labels that are known beforehand, whatever a client asks for."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from serving.embedded.apiserver.handlers import dispatcher, request_metrics
from serving.embedded.apiserver.handlers.request_metrics import RequestLabels, RequestMetrics
from serving.embedded.apiserver.requests import paths
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.store import ObjectStore
from tests.objects.stored_kinds import SERVED_KINDS, STORED_KINDS

VERBS = {"GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION", "OTHER"}
PODS = ("", "v1", "pods")
SERVED = request_metrics.resource_types(SERVED_KINDS)


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
    assert request_metrics.labels(method, paths.split(path), SERVED, watches=watches) == expected


@pytest.mark.parametrize(
    ("query", "watches"),
    [
        (b"watch=true", True),
        (b"watch=1&limit=5", True),
        (b"limit=5&watch", True),
        (b"watch=", True),
        (b"watch=0", False),
        (b"watch=false", False),
        (b"watch=F", False),
        (b"", False),
        (b"labelSelector=app%3Dwatcher", False),
        (b"labelSelector=app=watch", False),
        (b"fieldSelector=involvedObject.name%3Dwatch-x", False),
        (b"allowWatchBookmarks=true&unwatch=1", False),
    ],
)
def test_a_request_is_a_watch_by_its_parameter_alone(query: bytes, *, watches: bool) -> None:
    assert dispatcher._watches(query) is watches


words = st.sampled_from(
    ["", "api", "apis", "v1", "apps", "namespaces", "pods", "exec", "log", "deployments", "x"]
)


@given(
    method=st.text(max_size=6), parts=st.lists(words | st.text(max_size=4), max_size=8), watches=st.booleans()
)
def test_no_request_adds_a_label_value(method: str, parts: list[str], *, watches: bool) -> None:
    labels = request_metrics.labels(method, paths.split("/" + "/".join(parts)), SERVED, watches=watches)
    assert labels.verb in VERBS
    assert (labels.group, labels.version, labels.resource) in SERVED | {("", "", "")}
    assert labels.subresource in {"", "log", "scale", "status", "other"}


async def test_a_page_has_every_request_by_code_and_duration_and_what_is_open(tmp_path: Path) -> None:
    store = ObjectStore(Database(tmp_path / "db", epoch=1, history=50), STORED_KINDS)
    metrics = RequestMetrics(store)
    pods = "/api/v1/pods"
    for code, seconds in ((200, 0.0005), (200, 0.02), (404, 99.0)):
        listed = metrics.of("GET", paths.parse(STORED_KINDS, pods), pods, watches=False)
        listed.begin()
        listed.end(code, seconds)
    watch = metrics.of("GET", paths.parse(STORED_KINDS, pods), pods, watches=True)
    watch.begin()

    def samples(name: str) -> dict[str, float]:
        page = metrics.page().decode()
        shown = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return {
            " ".join(
                sample.labels[key] for key in ("verb", "code", "le") if key in sample.labels
            ): sample.value
            for sample in shown
            if sample.name == name
        }

    assert samples("apiserver_request_total") == {"LIST 200": 2, "LIST 404": 1}
    buckets = samples("apiserver_request_duration_seconds_bucket")
    assert (buckets["LIST 0.001"], buckets["LIST 0.025"], buckets["LIST 30.0"], buckets["LIST +Inf"]) == (
        1,
        2,
        2,
        3,
    )
    assert samples("apiserver_request_duration_seconds_count") == {"LIST": 3}
    assert samples("apiserver_longrunning_requests") == {"WATCH": 1}
    watch.end(200, 5.0)
    assert samples("apiserver_longrunning_requests") == {"WATCH": 0}
    assert samples("apiserver_request_total") == {"LIST 200": 2, "LIST 404": 1, "WATCH 200": 1}
    await store.close()
