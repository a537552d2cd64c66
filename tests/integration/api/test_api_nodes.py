"""The Node of this machine: ready while its agent answers."""

import http.server
import json
import os
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.rig.servers.api_process import ApiProcess

NODES = "/api/v1/nodes"


class _Agent(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        del format, args


@pytest.fixture
def agent(server: ApiProcess) -> Iterator[http.server.ThreadingHTTPServer]:
    """A node agent that answers, at the port in its note; closing it is its end."""
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Agent)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    note = server.data_dir.metrics("node")
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"port": listening.server_port}))
    yield listening
    listening.shutdown()
    listening.server_close()
    thread.join()


@pytest.fixture
def client(server: ApiProcess) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


def ready(node: dict[str, object]) -> str:
    (condition,) = node["status"]["conditions"]  # type: ignore[index]
    assert condition["type"] == "Ready"
    return str(condition["status"])


@pytest.mark.usefixtures("agent")
def test_the_node_has_the_machines_capacity_and_is_ready_while_its_agent_answers(
    client: httpx.Client,
) -> None:
    (node,) = client.get(NODES).json()["items"]
    assert node["metadata"]["name"] == "local"
    assert int(node["status"]["capacity"]["cpu"]) == len(os.sched_getaffinity(0))
    assert node["status"]["capacity"]["memory"].endswith("Ki")
    assert ready(node) == "True"
    assert client.get(f"{NODES}/local").json() == node
    assert client.get(NODES, params={"labelSelector": "kubernetes.io/hostname=other"}).json()["items"] == []
    assert client.get(f"{NODES}/other").json()["details"] == {"name": "other", "kind": "nodes"}


def test_a_watch_tells_that_the_agent_ended(
    client: httpx.Client, agent: http.server.ThreadingHTTPServer
) -> None:
    with client.stream("GET", NODES, params={"watch": "1", "timeoutSeconds": "15"}) as stream:
        events = map(json.loads, stream.iter_lines())
        first = next(events)
        assert (first["type"], ready(first["object"])) == ("ADDED", "True")
        agent.shutdown()
        agent.server_close()
        second = next(events)
        assert (second["type"], ready(second["object"])) == ("MODIFIED", "Unknown")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in (first, second)]
    assert versions[0] < versions[1]


def test_a_node_without_an_agent_is_not_ready_and_a_write_is_refused(client: httpx.Client) -> None:
    node = client.get(f"{NODES}/local").json()
    assert ready(node) == "Unknown"
    assert "does not answer" in node["status"]["conditions"][0]["message"]
    refused = client.delete(f"{NODES}/local")
    assert (refused.status_code, refused.json()["reason"]) == (405, "MethodNotAllowed")
    assert "read only" in refused.json()["message"]
    initial = client.get(NODES, params={"watch": "1", "sendInitialEvents": "true"})
    assert initial.status_code == 422
