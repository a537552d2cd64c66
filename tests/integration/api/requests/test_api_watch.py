"""Watches and pages over HTTP, during writes and across restarts."""

import signal
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.objects.config_maps import MAPS, config_map, events
from tests.rig.servers.api_process import ApiProcess


def test_a_watch_delivers_every_write_of_concurrent_writers_once(client: httpx.Client, maps: str) -> None:
    version = client.get(maps).json()["metadata"]["resourceVersion"]

    def write(worker: int) -> None:
        for round_ in range(5):
            body = config_map(f"m{worker}") | {"data": {"round": str(round_)}}
            response = (
                client.post(maps, json=body) if round_ == 0 else client.put(f"{maps}/m{worker}", json=body)
            )
            assert response.status_code in (200, 201), response.text

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    seen = []
    for event in events(client, maps, resourceVersion=version, timeoutSeconds="20"):
        seen.append((event["object"]["metadata"]["name"], event["object"]["data"]["round"], event["type"]))
        if len(seen) == 40:
            break
    for worker in range(8):
        changes = [(round_, type_) for name, round_, type_ in seen if name == f"m{worker}"]
        assert changes == [("0", "ADDED"), *((str(n), "MODIFIED") for n in range(1, 5))]


def test_a_selector_follows_transitions_and_initial_events_end_with_a_bookmark(
    client: httpx.Client, maps: str
) -> None:
    client.post(maps, json=config_map("a", colour="red"))
    seen = []
    query = {"labelSelector": "colour=red", "timeoutSeconds": "10", "allowWatchBookmarks": "true"}
    query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    for event in events(client, maps, **query):
        seen.append(event["type"])
        if event["type"] == "BOOKMARK":
            assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            client.put(f"{maps}/a", json=config_map("a", colour="blue"))
            client.put(f"{maps}/a", json=config_map("a", colour="red"))
            client.delete(f"{maps}/a")
        if len(seen) == 5:
            break
    assert seen == ["ADDED", "BOOKMARK", "DELETED", "ADDED", "DELETED"]


def test_pages_are_of_one_version_during_other_writes(client: httpx.Client, maps: str) -> None:
    for index in range(5):
        client.post(maps, json=config_map(f"m{index}"))
    first = client.get(maps, params={"limit": 2}).json()
    assert first["metadata"]["remainingItemCount"] == 3
    client.delete(f"{maps}/m3")
    client.post(maps, json=config_map("m2a"))
    second = client.get(maps, params={"limit": 10, "continue": first["metadata"]["continue"]}).json()
    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert names == [f"m{index}" for index in range(5)]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_watches_resume_after_sigkill_and_old_versions_are_gone(server: ApiProcess) -> None:
    path = MAPS.format("default")
    with server.http() as client:
        before = client.get(path).json()["metadata"]["resourceVersion"]
        first = client.post(path, json=config_map("a", colour="red")).json()
        client.put(f"{path}/a", json=config_map("a", colour="blue"))
        client.delete(f"{path}/a")
    server.stop(signal.SIGKILL)
    server.start()
    with server.http() as client:
        query = {"resourceVersion": before, "timeoutSeconds": "1", "labelSelector": "colour=red"}
        seen = [(e["type"], e["object"]["metadata"]["name"]) for e in events(client, path, **query)]
        assert seen == [("ADDED", "a"), ("DELETED", "a")]
        second = client.post(path, json=config_map("b")).json()
        assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"]) + 2
        for index in range(60):
            client.post(path, json=config_map(f"c{index}"))
        gone = client.get(path, params={"watch": "1", "resourceVersion": before})
        assert gone.status_code == 410
        assert gone.json()["reason"] == "Expired"
