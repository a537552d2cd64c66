"""`/pods/NAME/log`, on files that the test writes like the node agent."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.rig.servers.api_process import ApiProcess


def test_logs_are_followed_across_rotation_until_the_container_ends(server: ApiProcess) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "local",
            "containers": [{"name": "one", "image": "x"}, {"name": "two", "image": "x"}],
        },
    }
    pods = "/api/v1/namespaces/default/pods"
    with server.http() as client, ThreadPoolExecutor(1) as pool:
        created = client.post(pods, json=pod)
        assert created.status_code == 201, created.text
        refused = client.get(f"{pods}/p/log")
        assert refused.status_code == 400
        assert "[one two]" in refused.json()["message"]
        refused = client.get(f"{pods}/p/log?container=one")
        assert refused.status_code == 400
        assert "waiting to start" in refused.json()["message"]
        path = server.data_dir.pod_log(created.json()["metadata"]["uid"], "one", 0)
        path.parent.mkdir(parents=True)
        path.write_text("a\nb\nc\n")
        assert client.get(f"{pods}/p/log?container=one&tailLines=2").text == "b\nc\n"
        assert client.get(f"{pods}/p/log?container=one&limitBytes=3").text == "a\nb"
        assert client.get(f"{pods}/p/log?container=one&previous=true").status_code == 400
        for query in ("timestamps=true", "sinceSeconds=5", "sinceTime=2026-01-01T00:00:00Z"):
            refused = client.get(f"{pods}/p/log?container=one&{query}")
            assert refused.status_code == 400
            assert "without their times" in refused.json()["message"]
        for query in (
            "sinceSeconds=0",
            "sinceTime=yesterday",
            "sinceTime=2026-01-01T00:00:00",
            "timestamps=x",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            "tailLines=-1",
        ):
            refused = client.get(f"{pods}/p/log?container=one&{query}")
            assert refused.status_code == 400
            assert refused.json()["details"]["causes"][0]["field"] in query
        following = pool.submit(client.get, f"{pods}/p/log?container=one&follow=true")
        time.sleep(0.3)
        with path.open("a") as file:
            file.write("d\n")
        path.rename(path.with_name("0.log.1"))
        path.write_text("e\n")
        ended = {
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "one",
                        "state": {"terminated": {"exitCode": 0}},
                        "ready": False,
                        "restartCount": 0,
                        "image": "x",
                        "imageID": "",
                    }
                ],
            }
        }
        response = client.patch(
            f"{pods}/p/status", json=ended, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert response.status_code == 200, response.text
        assert following.result(10).text == "a\nb\nc\nd\ne\n"
        assert client.get(f"{pods}/p/log?container=one&tailLines=3").text == "c\nd\ne\n"


def test_follow_ends_after_the_last_line_when_the_files_are_removed_before_the_pod(
    server: ApiProcess,
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "leaving"},
        "spec": {"nodeName": "local", "containers": [{"name": "one", "image": "x"}]},
    }
    pods = "/api/v1/namespaces/default/pods"
    with server.http() as client:
        created = client.post(pods, json=pod)
        path = server.data_dir.pod_log(created.json()["metadata"]["uid"], "one", 0)
        path.parent.mkdir(parents=True)
        path.write_text("a\n")
        with client.stream("GET", f"{pods}/leaving/log?follow=true") as following:
            lines = following.iter_lines()
            assert next(lines) == "a"
            with path.open("a") as file:
                file.write("last\n")
            shutil.rmtree(path.parents[2])
            assert list(lines) == ["last"]
