"""The API server over HTTP: who may ask, what bad input gets, watches, restarts, a full disk, a quick end."""

import json
import signal
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api_process import ApiProcess

MAPS = "/api/v1/namespaces/{}/configmaps"


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"k": "v"},
    }


@pytest.fixture
def client(api_process: ApiProcess) -> Iterator[httpx.Client]:
    with api_process.http() as client:
        yield client


@pytest.fixture
def maps(client: httpx.Client) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    made = client.post(
        "/api/v1/namespaces", json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    assert made.status_code == 201, made.text
    yield MAPS.format(name)
    client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ApiProcess]:
    server = ApiProcess(tmp_path / "data", watch_history=50)
    server.start()
    yield server
    server.stop(signal.SIGKILL)


def events(client: httpx.Client, path: str, **query: str) -> Iterator[dict[str, Any]]:
    with client.stream("GET", path, params={"watch": "1", **query}) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            yield json.loads(line)


@pytest.mark.parametrize("token", ["x", "wrong", "é"])
def test_without_the_token_everything_but_health_is_401(api_process: ApiProcess, token: str) -> None:
    with api_process.http(token="x") as client:
        header = {"Authorization": f"Bearer {token}".encode()}
        for path in ("/api", "/version", "/openapi/v3", "/api/v1/pods", "/nowhere"):
            answer = client.get(path, headers=header)
            assert answer.status_code == 401
            assert answer.json()["reason"] == "Unauthorized"
        assert client.get("/healthz", headers=header).text == "ok"


def test_secrets_are_readable_by_the_owner_alone(api_process: ApiProcess) -> None:
    data = api_process.data_dir
    for path in (data.kubeconfig, data.token, data.database, *data.tls.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(data.root.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"), (b"{", "application/json"), (b"[]", "application/json"), (b"NaN", "application/json"),
        (b'{"metadata": {"name": NaN}}', "application/json"), (b"\xff\xfe", "application/json"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "application/json"), (b"[" * 200_000, "application/yaml"),
        (b"- " * 5000 + b"a", "application/yaml"), (b"a: &a [1]\nb: *a", "application/yaml"),
        (b"a: .nan", "application/yaml"), (b"!!python/object/apply:os.system [ls]", "application/yaml"),
        (b'"\\ud800"', "application/json"), (b'{"metadata": 7}', "application/json"),
        (b'{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}', "application/json"),
        (b'{"metadata": {"name": "A B"}}', "application/json"),
    ],
)  # fmt: skip
def test_bad_bodies_are_4xx_with_a_status_and_store_nothing(
    client: httpx.Client, maps: str, body: bytes, kind: str
) -> None:
    answer = client.post(maps, content=body, headers={"Content-Type": kind})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["kind"] == "Status"
    assert client.get(maps).json()["items"] == []


@pytest.mark.parametrize(
    ("method", "suffix", "code"),
    [
        ("GET", "?limit=-1", 400), ("GET", "?limit=many", 400), ("GET", "?resourceVersion=x", 400),
        ("GET", "?continue=x", 400), ("GET", "?labelSelector=%3D%3D", 400), ("GET", "?fieldSelector=nope%3D1", 400),
        ("GET", "?watch=1&timeoutSeconds=x", 400), ("GET", "?watch=perhaps", 400), ("GET", "?watch=1&resourceVersion=3", 410),
        ("GET", "?resourceVersion=99999999999999999", 504), ("GET", "/a%2Fb", 404), ("GET", "/%00", 404),
        ("GET", "/a/nothing", 404), ("PUT", "", 405), ("POST", "/a", 405), ("POST", "?dryRun=Some", 400),
        ("POST", "?fieldValidation=Hard", 400), ("PATCH", "/a", 415), ("GET", "?resourceVersionMatch=Exact", 400),
    ],
)  # fmt: skip
def test_bad_requests_get_the_right_code(
    client: httpx.Client, maps: str, method: str, suffix: str, code: int
) -> None:
    answer = client.request(method, maps + suffix, content=json.dumps(config_map("a")))
    assert answer.status_code == code, answer.text
    assert answer.json()["kind"] == "Status"


def test_media_types_that_are_not_spoken_are_refused(client: httpx.Client, maps: str) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    assert client.get(maps, headers={"Accept": protobuf}).status_code == 406
    assert client.get(maps, headers={"Accept": f"{protobuf},application/json"}).status_code == 200
    assert client.post(maps, content=b"k8s\0", headers={"Content-Type": protobuf}).status_code == 415
    too_large = client.post(
        maps, content=b" " * (4 * 1024 * 1024), headers={"Content-Type": "application/json"}
    )
    assert too_large.status_code == 413


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_fields = st.fixed_dictionaries(
    {}, optional={"metadata": _json, "spec": _json, "data": _json, "status": _json, "kind": _json}
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["configmaps", "pods", "services", "secrets", "events"]),
    method=st.sampled_from(["POST", "PUT", "PATCH"]),
    media=st.sampled_from(
        ["merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
    ),
    body=_fields | _json,
)
def test_no_body_is_a_500(client: httpx.Client, kind: str, method: str, media: str, body: Any) -> None:
    path = f"/api/v1/namespaces/default/{kind}" + ("" if method == "POST" else "/fuzzed?fieldManager=f")
    content = json.dumps(body)
    header = f"application/{media}" if method == "PATCH" else "application/json"
    answer = client.request(method, path, content=content, headers={"Content-Type": header})
    assert answer.status_code < 500, answer.text
    client.delete(f"/api/v1/namespaces/default/{kind}/fuzzed")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "includeObject",
                          "timeoutSeconds", "resourceVersionMatch", "sendInitialEvents"]),
    value=st.text(max_size=12),
    accept=st.sampled_from(["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "text/html;;,="]),
)  # fmt: skip
def test_no_query_is_a_500(client: httpx.Client, name: str, value: str, accept: str) -> None:
    answer = client.get("/api/v1/pods", params={name: value}, headers={"Accept": accept})
    assert answer.status_code < 500 or answer.status_code == 504, answer.text


def test_a_watch_tells_every_write_of_concurrent_writers_once(client: httpx.Client, maps: str) -> None:
    version = client.get(maps).json()["metadata"]["resourceVersion"]

    def write(worker: int) -> None:
        for round_ in range(5):
            body = config_map(f"m{worker}") | {"data": {"round": str(round_)}}
            answer = (
                client.post(maps, json=body) if round_ == 0 else client.put(f"{maps}/m{worker}", json=body)
            )
            assert answer.status_code in (200, 201), answer.text

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    seen = []
    for event in events(client, maps, resourceVersion=version, timeoutSeconds="20"):
        seen.append((event["object"]["metadata"]["name"], event["object"]["data"]["round"], event["type"]))
        if len(seen) == 40:
            break
    for worker in range(8):
        mine = [(round_, type_) for name, round_, type_ in seen if name == f"m{worker}"]
        assert mine == [("0", "ADDED"), *((str(n), "MODIFIED") for n in range(1, 5))]


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


def test_pages_are_as_of_one_version_whatever_is_written_between(client: httpx.Client, maps: str) -> None:
    for index in range(5):
        client.post(maps, json=config_map(f"m{index}"))
    first = client.get(maps, params={"limit": 2}).json()
    assert first["metadata"]["remainingItemCount"] == 3
    client.delete(f"{maps}/m3")
    client.post(maps, json=config_map("m2a"))
    rest = client.get(maps, params={"limit": 10, "continue": first["metadata"]["continue"]}).json()
    names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
    assert names == [f"m{index}" for index in range(5)]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_watches_resume_after_sigkill_and_old_versions_are_gone(own: ApiProcess) -> None:
    path = MAPS.format("default")
    with own.http() as client:
        before = client.get(path).json()["metadata"]["resourceVersion"]
        made = client.post(path, json=config_map("a", colour="red")).json()
        client.put(f"{path}/a", json=config_map("a", colour="blue"))
        client.delete(f"{path}/a")
    own.stop(signal.SIGKILL)
    own.start()
    with own.http() as client:
        query = {"resourceVersion": before, "timeoutSeconds": "1", "labelSelector": "colour=red"}
        seen = [(e["type"], e["object"]["metadata"]["name"]) for e in events(client, path, **query)]
        assert seen == [("ADDED", "a"), ("DELETED", "a")]
        again = client.post(path, json=config_map("b")).json()
        assert int(again["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"]) + 2
        for index in range(60):
            client.post(path, json=config_map(f"c{index}"))
        gone = client.get(path, params={"watch": "1", "resourceVersion": before})
        assert gone.status_code == 410
        assert gone.json()["reason"] == "Expired"


def test_answered_writes_survive_sigkill_under_concurrent_writers(own: ApiProcess) -> None:
    path = MAPS.format("default")
    answered: list[tuple[str, str]] = []

    def write(worker: int) -> None:
        with own.http() as client:
            for index in range(1000):
                try:
                    made = client.post(path, json=config_map(f"w{worker}-{index}"))
                except httpx.HTTPError:
                    return
                answered.append((f"w{worker}-{index}", made.json()["metadata"]["resourceVersion"]))

    with ThreadPoolExecutor(4) as pool:
        for worker in range(4):
            pool.submit(write, worker)
        deadline = time.monotonic() + 20
        while len(answered) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        own.stop(signal.SIGKILL)
    own.start()
    with own.http() as client:
        found = {
            m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in client.get(path).json()["items"]
        }
    assert len(answered) >= 100
    assert {name: version for name, version in answered if found.get(name) != version} == {}


def test_the_end_does_not_wait_for_watchers_and_another_start_takes_the_port(own: ApiProcess) -> None:
    ready, ended = threading.Event(), threading.Event()

    def watch() -> None:
        with own.http() as client:
            for _ in events(client, "/api/v1/namespaces"):
                ready.set()
        ended.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert ready.wait(10)
    assert own.stop() < 2
    assert ended.wait(5)
    thread.join()
    own.start()


def test_a_port_in_use_is_said_with_what_to_do(own: ApiProcess, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from dataclasses import replace\n"
        "from serving import errors; from serving.embedded.api import server\n"
        "from serving.settings import DEFAULTS, DataDir\n"
        "try: asyncio.run(server.run(DataDir(Path(sys.argv[1])),"
        " replace(DEFAULTS, api=replace(DEFAULTS.api, port=int(sys.argv[2])))))\n"
        "except errors.UserError as error: print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "other"), str(own.settings.port)],
        capture_output=True, text=True, check=False, timeout=20,
    ).stdout  # fmt: skip
    assert f"127.0.0.1:{own.settings.port} is in use" in told
    assert "--port" in told
    assert not (tmp_path / "other" / "kubeconfig").exists()


def test_the_certificate_passes_strict_checks_for_every_loopback_name(own: ApiProcess) -> None:
    config = yaml.safe_load(own.data_dir.kubeconfig.read_text())
    import ssl

    context = ssl.create_default_context(cafile=str(own.data_dir.tls / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    for host in ("127.0.0.1", "localhost"):
        with httpx.Client(verify=context, trust_env=False) as client:
            assert client.get(f"https://{host}:{own.settings.port}/healthz").text == "ok"
    assert config["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{own.settings.port}"


def test_pod_logs_follow_until_the_container_ends_and_survive_rotation(own: ApiProcess) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "local", "containers": [{"name": "one", "image": "x"}, {"name": "two", "image": "x"}]},
    }  # fmt: skip
    pods = "/api/v1/namespaces/default/pods"
    with own.http() as client, ThreadPoolExecutor(1) as pool:
        made = client.post(pods, json=pod)
        assert made.status_code == 201, made.text
        unnamed = client.get(f"{pods}/p/log")
        assert unnamed.status_code == 400
        assert "[one two]" in unnamed.json()["message"]
        early = client.get(f"{pods}/p/log?container=one")
        assert early.status_code == 400
        assert "waiting to start" in early.json()["message"]
        path = own.data_dir.pod_log(made.json()["metadata"]["uid"], "one", 0)
        path.parent.mkdir(parents=True)
        path.write_text("a\nb\nc\n")
        assert client.get(f"{pods}/p/log?container=one&tailLines=2").text == "b\nc\n"
        assert client.get(f"{pods}/p/log?container=one&limitBytes=3").text == "a\nb"
        assert client.get(f"{pods}/p/log?container=one&previous=true").status_code == 400
        following = pool.submit(client.get, f"{pods}/p/log?container=one&follow=true")
        time.sleep(0.3)
        with path.open("a") as file:
            file.write("d\n")
        path.rename(path.with_name("0.log.1"))
        path.write_text("e\n")
        ended = {"status": {"phase": "Running", "containerStatuses": [
            {"name": "one", "state": {"terminated": {"exitCode": 0}}, "ready": False, "restartCount": 0,
             "image": "x", "imageID": ""}]}}  # fmt: skip
        answer = client.patch(
            f"{pods}/p/status", json=ended, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert answer.status_code == 200, answer.text
        assert following.result(10).text == "a\nb\nc\nd\ne\n"
        assert client.get(f"{pods}/p/log?container=one&tailLines=3").text == "c\nd\ne\n"


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
