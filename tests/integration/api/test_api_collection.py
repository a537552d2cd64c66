"""What goes because what it belonged to has gone."""

import time

import httpx

from tests.objects.config_maps import config_map


def test_owners_take_their_dependants_with_them_as_asked(client: httpx.Client, maps: str) -> None:
    def family(name: str) -> None:
        owner = client.post(maps, json=config_map(name)).json()
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}
        child = config_map(f"{name}-child")
        child["metadata"]["ownerReferences"] = [{**ref, "blockOwnerDeletion": True}]
        assert client.post(maps, json=child).status_code == 201

    def eventually_gone(name: str) -> None:
        deadline = time.monotonic() + 5
        while client.get(f"{maps}/{name}").status_code != 404:
            assert time.monotonic() < deadline, name
            time.sleep(0.02)

    for policy in ("Background", "Foreground"):
        family(policy.lower())
        client.request("DELETE", f"{maps}/{policy.lower()}", json={"propagationPolicy": policy})
        eventually_gone(f"{policy.lower()}-child")
        eventually_gone(policy.lower())
    family("orphan")
    client.request("DELETE", f"{maps}/orphan", json={"propagationPolicy": "Orphan"})
    eventually_gone("orphan")
    assert "ownerReferences" not in client.get(f"{maps}/orphan-child").json()["metadata"]


def test_a_namespace_takes_its_content_with_it(client: httpx.Client, maps: str) -> None:
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


def test_no_request_takes_all_namespaces_or_the_default_one(client: httpx.Client) -> None:
    assert client.delete("/api/v1/namespaces").status_code == 405
    refused = client.delete("/api/v1/namespaces/default")
    assert refused.status_code == 403
    assert "may not be deleted" in refused.json()["message"]
    offered = {r["name"]: r["verbs"] for r in client.get("/api/v1").json()["resources"]}
    assert "deletecollection" not in offered["namespaces"]
    assert "deletecollection" in offered["pods"]
