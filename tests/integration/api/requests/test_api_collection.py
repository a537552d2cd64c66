"""Collections and garbage collection over HTTP: dependents and the content of namespaces."""

import time

import httpx

from tests.objects.config_maps import config_map


def test_deletion_follows_the_propagation_policy(client: httpx.Client, maps: str) -> None:
    def create_owner_and_child(name: str) -> None:
        owner = client.post(maps, json=config_map(name)).json()
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}
        child = config_map(f"{name}-child")
        child["metadata"]["ownerReferences"] = [{**ref, "blockOwnerDeletion": True}]
        assert client.post(maps, json=child).status_code == 201

    def wait_until_gone(name: str) -> None:
        deadline = time.monotonic() + 5
        while client.get(f"{maps}/{name}").status_code != 404:
            assert time.monotonic() < deadline, name
            time.sleep(0.02)

    for policy in ("Background", "Foreground"):
        create_owner_and_child(policy.lower())
        client.request("DELETE", f"{maps}/{policy.lower()}", json={"propagationPolicy": policy})
        wait_until_gone(f"{policy.lower()}-child")
        wait_until_gone(policy.lower())
    create_owner_and_child("orphan")
    client.request("DELETE", f"{maps}/orphan", json={"propagationPolicy": "Orphan"})
    wait_until_gone("orphan")
    assert "ownerReferences" not in client.get(f"{maps}/orphan-child").json()["metadata"]


def test_deleting_a_namespace_deletes_its_content(client: httpx.Client, maps: str) -> None:
    space = maps.removesuffix("/configmaps")
    client.post(maps, json=config_map("a") | {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    client.post(maps, json=config_map("b"))
    assert client.delete(space).json()["status"]["phase"] == "Terminating"
    refused = client.post(maps, json=config_map("late"))
    assert refused.status_code == 403
    assert "terminat" in refused.json()["message"]
    patched = client.patch(
        f"{maps}/a",
        json={"metadata": {"finalizers": None}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert patched.status_code == 200, patched.text
    deadline = time.monotonic() + 5
    while client.get(space).status_code != 404:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert client.get(maps).json()["items"] == []
    assert client.post(maps, json=config_map("x")).status_code == 404


def test_deleting_all_namespaces_or_the_default_one_is_refused(client: httpx.Client) -> None:
    assert client.delete("/api/v1/namespaces").status_code == 405
    refused = client.delete("/api/v1/namespaces/default")
    assert refused.status_code == 403
    assert "may not be deleted" in refused.json()["message"]
    verbs = {r["name"]: r["verbs"] for r in client.get("/api/v1").json()["resources"]}
    assert "deletecollection" not in verbs["namespaces"]
    assert "deletecollection" in verbs["pods"]


def test_the_namespace_asterisk_is_empty_when_all_namespaces_have_objects(
    client: httpx.Client, maps: str
) -> None:
    def names(path: str) -> list[str]:
        return [item["metadata"]["name"] for item in client.get(path).json()["items"]]

    everywhere, asterisk = "/api/v1/configmaps", "/api/v1/namespaces/*/configmaps"
    client.post(maps, json=config_map("kept"))
    assert names(asterisk) == []
    assert "kept" in names(everywhere)
    assert names(asterisk) == []
    assert client.delete(asterisk).status_code == 200
    assert names(maps) == ["kept"]
