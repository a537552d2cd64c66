"""`/pods/NAME/log`, on files that the test writes like the node agent."""

import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.rig.servers.api_process import ApiProcess

PODS = "/api/v1/namespaces/default/pods"


class StoredPod(NamedTuple):
    """A Pod with the containers `one` and `two`."""

    path: str
    uid: str

    @property
    def log(self) -> str:
        """Path of the logs of the container `one`."""
        return f"{self.path}/log?container=one"


@pytest.fixture
def pod(client: httpx.Client) -> Iterator[StoredPod]:
    name = f"p-{uuid.uuid4().hex[:8]}"
    containers = [{"name": "one", "image": "x"}, {"name": "two", "image": "x"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": "local", "containers": containers},
    }
    created = client.post(PODS, json=body)
    assert created.status_code == 201, created.text
    yield StoredPod(f"{PODS}/{name}", created.json()["metadata"]["uid"])
    client.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})


@pytest.fixture
def log_file(api_process: ApiProcess, pod: StoredPod) -> Path:
    """Write three lines of the container `one`, without an index of their times."""
    path = api_process.data_dir.pod_log(pod.uid, "one", 0)
    path.parent.mkdir(parents=True)
    path.write_text("a\nb\nc\n")
    return path


@pytest.mark.parametrize(("query", "words"), [("", "[one two]"), ("?container=one", "waiting to start")])
def test_logs_of_an_unnamed_or_waiting_container_are_refused(
    client: httpx.Client, pod: StoredPod, query: str, words: str
) -> None:
    refused = client.get(f"{pod.path}/log{query}")
    assert refused.status_code == 400
    assert words in refused.json()["message"]


@pytest.mark.usefixtures("log_file")
def test_logs_are_limited_by_lines_and_bytes(client: httpx.Client, pod: StoredPod) -> None:
    assert client.get(f"{pod.log}&tailLines=2").text == "b\nc\n"
    assert client.get(f"{pod.log}&limitBytes=3").text == "a\nb"
    assert client.get(f"{pod.log}&previous=true").status_code == 400


@pytest.mark.usefixtures("log_file")
@pytest.mark.parametrize("query", ["timestamps=true", "sinceSeconds=5", "sinceTime=2026-01-01T00:00:00Z"])
def test_times_of_lines_without_an_index_are_refused(
    client: httpx.Client, pod: StoredPod, query: str
) -> None:
    refused = client.get(f"{pod.log}&{query}")
    assert refused.status_code == 400
    assert "without their times" in refused.json()["message"]


@pytest.mark.usefixtures("log_file")
@pytest.mark.parametrize(
    "query",
    [
        "sinceSeconds=0",
        "sinceTime=yesterday",
        "sinceTime=2026-01-01T00:00:00",
        "timestamps=x",
        "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
        "tailLines=-1",
    ],
)
def test_invalid_option_of_logs_is_refused_by_its_name(
    client: httpx.Client, pod: StoredPod, query: str
) -> None:
    refused = client.get(f"{pod.log}&{query}")
    assert refused.status_code == 400
    assert refused.json()["details"]["causes"][0]["field"] in query


@pytest.mark.parametrize(
    "states",
    [
        {"state": {"terminated": {"exitCode": 0}}},
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "slipway://u/one/0"}},
        },
    ],
    ids=["terminated", "waits"],
)
def test_logs_are_followed_across_rotation_until_the_container_ends(
    client: httpx.Client, pod: StoredPod, log_file: Path, states: dict[str, Any]
) -> None:
    ended = {
        "name": "one",
        "containerID": "slipway://u/one/0",
        **states,
        "ready": False,
        "restartCount": 0,
        "image": "x",
        "imageID": "",
    }
    status = {"status": {"phase": "Running", "containerStatuses": [ended]}}
    with ThreadPoolExecutor(1) as pool, client.stream("GET", f"{pod.log}&follow=true") as following:
        lines = following.iter_text()
        first = next(lines)
        with log_file.open("a") as file:
            file.write("d\n")
        log_file.rename(log_file.with_name("0.log.1"))
        log_file.write_text("e\n")
        merge = {"Content-Type": "application/merge-patch+json"}
        response = client.patch(f"{pod.path}/status", json=status, headers=merge)
        assert response.status_code == 200, response.text
        assert first + pool.submit("".join, lines).result(10) == "a\nb\nc\nd\ne\n"
    assert client.get(f"{pod.log}&tailLines=3").text == "c\nd\ne\n"


def test_follow_ends_after_the_last_line_when_the_files_are_removed_before_the_pod(
    client: httpx.Client, pod: StoredPod, log_file: Path
) -> None:
    with client.stream("GET", f"{pod.log}&follow=true") as following:
        lines = following.iter_lines()
        assert [next(lines) for _ in range(3)] == ["a", "b", "c"]
        with log_file.open("a") as file:
            file.write("last\n")
        shutil.rmtree(log_file.parents[2])
        assert list(lines) == ["last"]
