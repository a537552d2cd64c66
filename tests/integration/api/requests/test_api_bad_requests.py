"""Bad requests get a Status with the right code, and nothing is stored."""

import http.client
import json
import ssl
import time
from typing import Any

import httpx
import pytest

from tests.objects.config_maps import config_map
from tests.rig.servers.api_process import ApiProcess


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"NaN", "application/json"),
        (b'{"metadata": {"name": NaN}}', "application/json"),
        (b"\xff\xfe", "application/json"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "application/json"),
        (b"[" * 200_000, "application/yaml"),
        (b"- " * 5000 + b"a", "application/yaml"),
        (b"a: &a [1]\nb: *a", "application/yaml"),
        (b"a: .nan", "application/yaml"),
        (b"!!python/object/apply:os.system [ls]", "application/yaml"),
        (b'"\\ud800"', "application/json"),
        (b'{"metadata": 7}', "application/json"),
        (b'{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}', "application/json"),
        (b'{"metadata": {"name": "A B"}}', "application/json"),
    ],
)
def test_bad_bodies_are_4xx_with_a_status_and_store_nothing(
    client: httpx.Client, maps: str, body: bytes, kind: str
) -> None:
    response = client.post(maps, content=body, headers={"Content-Type": kind})
    assert 400 <= response.status_code < 500, response.text
    assert response.json()["kind"] == "Status"
    assert client.get(maps).json()["items"] == []


@pytest.mark.parametrize(
    ("method", "suffix", "code"),
    [
        ("GET", "?limit=-1", 400),
        ("GET", "?limit=many", 400),
        ("GET", "?resourceVersion=x", 400),
        ("GET", "?continue=x", 400),
        ("GET", "?labelSelector=%3D%3D", 400),
        ("GET", "?fieldSelector=nope%3D1", 400),
        ("GET", "?watch=1&timeoutSeconds=x", 400),
        ("GET", "?watch=perhaps", 400),
        ("GET", "?watch=1&resourceVersion=3", 410),
        ("GET", "?resourceVersion=99999999999999999", 504),
        ("GET", "/a%2Fb", 404),
        ("GET", "/%00", 404),
        ("GET", "/a/nothing", 404),
        ("PUT", "", 405),
        ("POST", "/a", 405),
        ("POST", "?dryRun=Some", 400),
        ("POST", "?fieldValidation=Hard", 400),
        ("PATCH", "/a", 415),
        ("GET", "?resourceVersionMatch=Exact", 400),
    ],
)
def test_bad_requests_get_the_right_code(
    client: httpx.Client, maps: str, method: str, suffix: str, code: int
) -> None:
    response = client.request(method, maps + suffix, content=json.dumps(config_map("a")))
    assert response.status_code == code, response.text
    assert response.json()["kind"] == "Status"


def test_nothing_is_written_when_the_form_of_the_answer_is_refused(client: httpx.Client, maps: str) -> None:
    table = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    merge = {**table, "Content-Type": "application/merge-patch+json"}
    bogus = "?includeObject=Bogus"
    created = client.post(maps + bogus, content=json.dumps(config_map("a")), headers=table)
    assert (created.status_code, client.get(f"{maps}/a").status_code) == (400, 404)
    stored = client.post(maps, content=json.dumps(config_map("a"))).json()
    changed = json.dumps({**stored, "data": {"changed": "x"}})
    for response in (
        client.put(f"{maps}/a{bogus}", content=changed, headers=table),
        client.patch(f"{maps}/a{bogus}", content=changed, headers=merge),
    ):
        assert response.status_code == 400
    assert client.get(f"{maps}/a").json() == stored


def test_unsupported_media_types_are_refused(client: httpx.Client, maps: str) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    assert client.get(maps, headers={"Accept": protobuf}).status_code == 406
    assert client.get(maps, headers={"Accept": f"{protobuf},application/json"}).status_code == 200
    broken = client.post(maps, content=b"k8s\0", headers={"Content-Type": protobuf})
    assert broken.status_code == 400
    models = maps.replace("/api/v1", "/apis/slipway.dev/v1alpha1").replace("configmaps", "models")
    refused = client.post(models, content=b"k8s\0", headers={"Content-Type": protobuf})
    assert refused.status_code == 415
    assert "application/json, application/yaml" in refused.json()["message"]
    too_large = client.post(
        maps, content=b" " * (4 * 1024 * 1024), headers={"Content-Type": "application/json"}
    )
    assert too_large.status_code == 413


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_a_large_body_to_its_end_reads_the_413(
    api_process: ApiProcess, maps: str, *, chunked: bool
) -> None:
    with api_process.http() as client:
        url, headers = client.base_url, dict(client.headers)
    trust = ssl.create_default_context(cafile=str(api_process.data_dir.tls / "ca.crt"))
    connection = http.client.HTTPSConnection(url.host, url.port, timeout=15, context=trust)
    body = [b"x" * 1024 * 1024] * 24
    size = {} if chunked else {"Content-Length": str(24 * 1024 * 1024)}
    headers = {"Authorization": headers["authorization"], "Content-Type": "application/json", **size}
    connection.request("POST", maps, body=iter(body), headers=headers, encode_chunked=chunked)
    answer = connection.getresponse()
    assert answer.status == 413
    status = json.loads(answer.read())
    assert status["reason"] == "RequestEntityTooLarge"
    assert status["message"] == "Request entity too large: limit is 3145728 bytes"
    connection.request("GET", "/version", headers=headers | {"Content-Length": "0"})
    assert connection.getresponse().status == 200
    connection.close()


def patch(client: httpx.Client, path: str, operations: list[dict[str, Any]]) -> httpx.Response:
    return client.patch(path, json=operations, headers={"Content-Type": "application/json-patch+json"})


def test_a_patch_that_grows_the_object_exponentially_is_refused(client: httpx.Client, maps: str) -> None:
    client.post(maps, json=config_map("a"))
    bomb = [{"op": "copy", "from": "/metadata", "path": f"/metadata/x{n}"} for n in range(60)]
    refused = patch(client, f"{maps}/a", bomb)
    assert refused.status_code == 422
    assert "copies may make at most" in refused.json()["message"]
    deep = [{"op": "add", "path": "/data" + "/k" * n, "value": {}} for n in range(1, 300)]
    refused = patch(client, f"{maps}/a", [{"op": "add", "path": "/data", "value": {}}, *deep])
    assert refused.status_code == 400
    assert "levels deep" in refused.json()["message"]
    assert client.get(f"{maps}/a").json()["data"] == {"k": "v"}


def test_an_encoded_slash_is_part_of_a_name(client: httpx.Client, maps: str) -> None:
    client.post(maps, json=config_map("kept"))
    for name in ("/", "%2F", "%2f%2f", "a%2F..%2Fkept"):
        assert client.delete(f"{maps}/{name}").status_code in (404, 405)
    assert client.get(f"{maps}/kept").status_code == 200


def test_a_long_selector_is_refused_in_linear_time(client: httpx.Client, maps: str) -> None:
    started = time.monotonic()
    response = client.get(f"{maps}?labelSelector={'a,' * 25_000}")
    assert response.status_code == 400
    assert [cause["field"] for cause in response.json()["details"]["causes"]] == ["labelSelector"]
    assert time.monotonic() - started < 5
