"""Tables for `kubectl get`."""

from datetime import UTC, datetime
from typing import Any

import pytest

from serving.embedded.apiserver.tables import tables
from serving.resources import kinds
from serving.resources.formats import ages
from tests.objects.stored_kinds import STORED_KINDS
from tests.objects.write_requests import NOW, create, deployment, inference, job, pod

AT = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)


def row(kind: kinds.Kind, obj: dict[str, Any]) -> dict[str, Any]:
    table = tables.table(STORED_KINDS, kind, [obj], now=AT)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-2, "<invalid>"),
        (-1.5, "0s"),  # clocks of machines differ
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_071_999, "729d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (252_288_000, "8y"),
    ],
)
def test_ages_have_the_format_of_kubectl(seconds: float, text: str) -> None:
    assert ages.human(seconds) == text


def test_a_column_whose_path_does_not_fit_the_object_is_empty() -> None:
    obj = create(kinds.INFERENCE, inference())
    obj["status"] = {"conditions": "none"}
    assert row(kinds.INFERENCE, obj)["Ready"] is None


def test_slipway_kinds_have_the_columns_of_their_definition() -> None:
    obj = create(kinds.INFERENCE, inference())
    obj["status"] = {
        "url": "http://x",
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    }
    cells = row(kinds.INFERENCE, obj)
    assert cells == {
        "Name": "digits",
        "Ready": "True",
        "Reason": "Ready",
        "Traffic": None,
        "URL": "http://x",
        "Age": "60s",
    }


def test_the_status_column_of_a_pod_has_the_most_specific_reason() -> None:
    obj = create(kinds.POD, pod())
    assert row(kinds.POD, obj)["Status"] == "Pending"
    obj["status"] = {
        "phase": "Running",
        "podIP": "127.77.0.1",
        "containerStatuses": [
            {
                "ready": False,
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": NOW}},
            }
        ],
    }
    cells = row(kinds.POD, obj)
    assert (cells["Ready"], cells["Status"], cells["Restarts"]) == ("0/1", "CrashLoopBackOff", "3 (60s ago)")
    assert cells["IP"] == "127.77.0.1"
    obj["metadata"]["deletionTimestamp"] = NOW
    assert row(kinds.POD, obj)["Status"] == "Terminating"


def test_restarts_are_those_of_the_init_containers_when_these_are_not_done() -> None:
    obj = create(kinds.POD, pod(initContainers=[{"name": "first", "image": "web:1"}]))
    failing = {
        "name": "first",
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": NOW}},
    }
    waiting = {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
    obj["status"] = {
        "phase": "Pending",
        "initContainerStatuses": [failing],
        "containerStatuses": [waiting],
    }
    cells = row(kinds.POD, obj)
    assert (cells["Status"], cells["Restarts"]) == ("Init:CrashLoopBackOff", "3 (60s ago)")
    failing["state"] = {"terminated": {"exitCode": 0}}
    assert row(kinds.POD, obj)["Restarts"] == "0"


def test_deployments_and_jobs_show_their_counts() -> None:
    web = create(kinds.DEPLOYMENT, deployment(replicas=3))
    web["status"] = {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}
    cells = row(kinds.DEPLOYMENT, web)
    assert (cells["Ready"], cells["Up-to-date"], cells["Available"]) == ("2/3", 3, 1)
    finished_job = create(kinds.JOB, job())
    finished_job["status"] = {
        "succeeded": 1,
        "startTime": NOW,
        "completionTime": "2026-01-02T03:04:35Z",
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    cells = row(kinds.JOB, finished_job)
    assert (cells["Status"], cells["Completions"], cells["Duration"]) == ("Complete", "1/1", "30s")


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_rows_include_the_requested_object(include: str) -> None:
    table = tables.table(
        STORED_KINDS,
        kinds.POD,
        [create(kinds.POD, pod())],
        now=AT,
        include_object=include,
        resource_version="5",
    )
    included = table["rows"][0].get("object")
    assert (None if included is None else included["kind"]) == {
        "None": None,
        "Metadata": "PartialObjectMetadata",
        "Object": "Pod",
    }[include]
    assert table["metadata"] == {"resourceVersion": "5"}


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)
def test_every_kind_has_columns_with_unique_names(kind: kinds.Kind) -> None:
    columns = tables.table(STORED_KINDS, kind, [], now=AT)["columnDefinitions"]
    assert columns[0]["name"] in ("Name", "Last Seen")
    assert len({column["name"] for column in columns}) == len(columns)
