import io
import sys

import pytest

from serving import errors
from serving.cli.objects import logs
from serving.cli.objects.logs import seconds
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("2m", 120), ("3h", 10800), ("1h30m", 5400)])
def test_durations_have_the_form_of_kubectl(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "-1s", "1s2m"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(errors.UserError, match="1h30m"):
        seconds(text)


OBEYED = b"\x1b]52;c;ZXZpbA==\x07a\tb\rc\xc2\x9b2J \x9b\x00\x7f\xc3\xa9\xf0\x9f\x8c\x8d\xe2\x80\xae\r"
SHOWN = "\\x1b]52;c;ZXZpbA==\\x07a\tb\\x0dc\\x9b2J \\x9b\\x00\\x7fé🌍\\u202e\r".encode()


@pytest.mark.parametrize(("is_terminal", "written"), [(True, SHOWN), (False, OBEYED)])
def test_control_characters_are_escaped_when_the_output_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, written: bytes
) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", output)
    logs._write("[p] ", OBEYED)
    assert output.buffer.getvalue() == b"[p] " + written + b"\n"  # type: ignore[attr-defined]


def _pod(name: str, owner: Object, labels: Object) -> Object:
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
    ],
)
async def test_pods_of_a_deployment_are_listed_by_its_selector_when_replica_sets_own_them(
    selector: Object,
) -> None:
    kube = FakeKube()
    pod_template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": selector, "template": pod_template}
    kube.add(kinds.DEPLOYMENT, {"metadata": {"name": "web"}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r1", "controller": True}
    kube.add(kinds.POD, _pod("web-1-a", owner, {"app": "web", "pod-template-hash": "1"}))
    kube.add(kinds.POD, _pod("other-1-a", owner, {"app": "other"}))
    deployment, pods = await logs._pods(kube, "default", "deployment/web", "")
    assert deployment["metadata"]["name"] == "web"
    assert [pod["metadata"]["name"] for pod in pods] == ["web-1-a"]


async def test_pods_of_a_job_are_those_that_it_owns() -> None:
    kube = FakeKube()
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    job = kube.add(kinds.JOB, {"metadata": {"name": "fit"}, "spec": {"template": {"spec": pod_spec}}})
    uid = job["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "fit", "uid": uid, "controller": True}
    kube.add(kinds.POD, _pod("fit-a", owner, {}))
    kube.add(kinds.POD, _pod("earlier-a", {**owner, "uid": "earlier"}, {}))
    assert [pod["metadata"]["name"] for pod in (await logs._pods(kube, "default", "job/fit", ""))[1]] == [
        "fit-a"
    ]
