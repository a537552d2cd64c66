"""The real kubectl on Pods, Deployments and Jobs that a real node agent runs."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from serving import clock
from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl
from tests.rig.servers.api_process import ApiProcess
from tests.rig.servers.node_process import NodeProcess

pytestmark = needs_kubectl
STAYS = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"


def container(script: str) -> dict[str, object]:
    return {"name": "main", "image": "example.com/any:1", "command": ["sh", "-c", script]}


def pod(name: str, script: str, restart: str = "Never") -> str:
    spec = {"restartPolicy": restart, "terminationGracePeriodSeconds": 3, "containers": [container(script)]}
    meta = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def deployment(name: str, script: str = STAYS, replicas: int = 1) -> str:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 3, "containers": [container(script)]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    )


def job(name: str, script: str) -> str:
    template = {"spec": {"restartPolicy": "Never", "containers": [container(script)]}}
    return json.dumps(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    api = ApiProcess(tmp_path_factory.mktemp("machine") / "data").start()
    node = NodeProcess(api.data_dir).start()
    yield api
    node.stop()
    api.stop()
    print(node.log.read_text()[-4000:])


@pytest.fixture
def kubectl(machine: ApiProcess, tmp_path: Path) -> Iterator[Kubectl]:
    space = Kubectl(machine.data_dir.kubeconfig, tmp_path, f"w-{uuid.uuid4().hex[:8]}")
    space("create", "namespace", space.namespace)
    yield space
    space("delete", "namespace", space.namespace, "--timeout=30s")


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def pods(kubectl: Kubectl, label: str) -> list[str]:
    return kubectl("get", "pods", "-l", label, "-o", "name").split()


def test_logs_support_follow_tail_and_limit(kubectl: Kubectl) -> None:
    manifest = pod("talks", "for i in 1 2 3 4; do echo $i; sleep 0.2; done")
    assert kubectl("apply", "-f", "-", stdin=manifest) == "pod/talks created\n"
    assert kubectl("apply", "-f", "-", stdin=manifest) == "pod/talks unchanged\n"
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/talks", "--timeout=15s")
    assert kubectl("logs", "-f", "talks") == "1\n2\n3\n4\n"
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talks", "--timeout=15s")
    assert kubectl("logs", "talks", "--tail=2") == "3\n4\n"
    assert kubectl("logs", "talks", "--limit-bytes=3") == "1\n2"
    assert kubectl("logs", "-l", "app=talks", "--prefix", "--tail=1") == "[pod/talks/main] 4\n"
    assert "not found" in kubectl.fails("logs", "talks", "--previous")
    assert "nope" in kubectl.fails("logs", "talks", "-c", "nope")


def test_log_lines_have_their_write_times(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=pod("dated", "echo early; sleep 2.5; printf 'la'; sleep 0.1; echo te"))
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/dated", "--timeout=15s")
    assert kubectl("logs", "-f", "dated", "--timestamps").count("Z ") == 2
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/dated", "--timeout=15s")
    early, late = (line.split(" ") for line in kubectl("logs", "dated", "--timestamps").splitlines())
    assert (early[1], late[1]) == ("early", "late")
    first, second = (datetime.fromisoformat(stamp) for stamp in (early[0], late[0]))
    assert timedelta(seconds=2.3) < second - first < timedelta(seconds=10)
    assert abs(clock.now() - second) < timedelta(seconds=30)
    between = (first + timedelta(seconds=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert kubectl("logs", "dated", f"--since-time={between}") == "late\n"
    assert kubectl("logs", "dated", "--since=1h", "--tail=1") == "late\n"
    assert kubectl("logs", "dated", "--since=1h") == "early\nlate\n"


def test_the_previous_log_is_readable_when_a_container_has_crashed(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=pod("crashes", "echo crashed; exit 3", "Always"))
    restarts = "jsonpath={.status.containerStatuses[0].restartCount}"
    wait_until(lambda: int(kubectl("get", "pod", "crashes", "-o", restarts) or 0) >= 1)
    assert kubectl("logs", "crashes", "--previous") == "crashed\n"
    assert "crashes" in kubectl("get", "pods")
    described = kubectl("describe", "pod", "crashes")
    assert "Exit Code:    3" in described
    assert "Restart Count" in described


def test_deployments_support_rollout_scale_and_wait(kubectl: Kubectl) -> None:
    manifest = deployment("web")
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest)
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=10s")
    assert kubectl("apply", "-f", "-", stdin=manifest) == "deployment.apps/web unchanged\n"
    assert "scaled" in kubectl("scale", "deployment/web", "--replicas=2", "--current-replicas=1")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=10s")
    assert len(pods(kubectl, "app=web")) == 2
    assert kubectl("logs", "deployment/web", "--tail=1").endswith("up\n")
    row = kubectl("get", "deployment", "web", "--no-headers").split()
    assert row[:4] == ["web", "2/2", "2", "2"]
    described = kubectl("describe", "deployment", "web")
    assert "2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in described
    patch = '{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}'
    assert "patched" in kubectl("patch", "deployment", "web", "-p", patch)
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    revision = "jsonpath={.metadata.annotations.deployment\\.kubernetes\\.io/revision}"
    assert kubectl("get", "deployment", "web", "-o", revision) == "2"


def test_the_node_is_ready_listed_described_and_waited_for(kubectl: Kubectl) -> None:
    kubectl("wait", "--for=condition=Ready", "node/local", "--timeout=10s")
    name, status, roles, _, version = kubectl("get", "nodes", "--no-headers").split()
    assert (name, status, roles) == ("local", "Ready", "<none>")
    assert version.startswith("v1.32.0+slipway.")
    kubectl("apply", "-f", "-", stdin=pod("on-it", STAYS))
    kubectl("wait", "--for=condition=Ready", "pod/on-it", "--timeout=15s")
    described = kubectl("describe", "node", "local")
    assert "KubeletReady" in described
    assert "on-it" in described[described.index("Non-terminated Pods") :]
    assert "exec and cp are not offered" in kubectl.fails("exec", "on-it", "--", "ls")


def test_a_repeated_server_side_apply_of_a_running_deployment_changes_nothing(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    manifest = deployment("web")
    assert "serverside-applied (server dry run)" in kubectl(*apply, "--dry-run=server", stdin=manifest)
    assert "NotFound" in kubectl.fails("get", "deployment", "web")
    kubectl(*apply, stdin=manifest)
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    generation = ("get", "deployment", "web", "-o", "jsonpath={.metadata.generation}")
    assert kubectl(*generation) == "1"
    assert kubectl(*apply, stdin=manifest) == "deployment.apps/web serverside-applied\n"
    assert kubectl(*generation) == "1"
    output = kubectl.fails(
        "apply", "--server-side", "--field-manager=x", "-f", "-", stdin=deployment("web", "true")
    )
    assert ".spec.template.spec.containers" in output
    assert "conflict" in output


def test_delete_follows_the_cascade_option(kubectl: Kubectl) -> None:
    for name in ("kept", "gone"):
        kubectl("apply", "-f", "-", stdin=deployment(name))
        kubectl("rollout", "status", f"deployment/{name}", "--timeout=20s")
    (kept,) = pods(kubectl, "app=kept")
    kubectl("delete", "deployment", "kept", "--cascade=orphan", "--timeout=15s")
    assert kubectl("get", kept, "-o", "jsonpath={.metadata.ownerReferences}") == ""
    assert kubectl("get", kept, "-o", "jsonpath={.status.phase}") == "Running"
    kubectl("delete", "deployment", "gone", "--cascade=foreground", "--timeout=20s")
    assert pods(kubectl, "app=gone") == []
    waiting = kubectl.start("wait", "--for=delete", kept, "--timeout=20s")
    kubectl("delete", kept, "--wait=false")
    output, _ = waiting.communicate(timeout=25)
    assert waiting.returncode == 0, output
    assert "NotFound" in kubectl.fails("get", kept)


def test_jobs_support_apply_wait_logs_patch_and_delete(kubectl: Kubectl) -> None:
    manifest = job("train", "echo trained")
    assert kubectl("apply", "-f", "-", stdin=manifest) == "job.batch/train created\n"
    kubectl("wait", "--for=condition=Complete", "job/train", "--timeout=20s")
    assert kubectl("apply", "-f", "-", stdin=manifest) == "job.batch/train unchanged\n"
    assert kubectl("logs", "job/train") == "trained\n"
    assert kubectl("get", "job", "train", "--no-headers").split()[:3] == ["train", "Complete", "1/1"]
    assert "1 Succeeded" in kubectl("describe", "job", "train")
    assert "patched" in kubectl("patch", "job", "train", "-p", '{"spec":{"ttlSecondsAfterFinished":600}}')
    json_patch = '[{"op":"replace","path":"/spec/ttlSecondsAfterFinished","value":900}]'
    assert "patched" in kubectl("patch", "job", "train", "--type=json", "-p", json_patch)
    assert "immutable" in kubectl.fails("patch", "job", "train", "-p", '{"spec":{"completions":3}}')
    (pod_name,) = pods(kubectl, "job-name=train")
    kubectl("delete", "job", "train", "--cascade=orphan", "--timeout=10s")
    assert kubectl("get", pod_name, "-o", "jsonpath={.metadata.ownerReferences}") == ""
    kubectl("apply", "-f", "-", stdin=job("again", "true"))
    kubectl("wait", "--for=condition=Complete", "job/again", "--timeout=20s")
    kubectl("delete", "job", "again", "--cascade=foreground", "--timeout=15s")
    assert pods(kubectl, "job-name=again") == []


def test_pod_watch_shows_each_state_and_immutable_fields_are_refused(kubectl: Kubectl) -> None:
    watching = kubectl.start("get", "pods", "-w", "--no-headers")
    try:
        time.sleep(0.5)  # kubectl lists first; the Pod may be in its list or an event
        kubectl("create", "-f", "-", stdin=pod("short", "sleep 0.5"))
        kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/short", "--timeout=15s")
        assert watching.stdout is not None
        seen: list[str] = []
        while "Completed" not in seen:
            seen.append(watching.stdout.readline().split()[2])
    finally:
        watching.kill()
        watching.communicate()
    assert seen.index("Running") < seen.index("Completed")
    assert "patched" in kubectl("patch", "pod", "short", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    refused = kubectl.fails("patch", "pod", "short", "-p", '{"spec":{"hostname":"x"}}')
    assert "pod updates may not change fields" in refused
    assert "Completed" in kubectl("get", "pods", "--chunk-size=1")
    for path in (
        "pod.spec.containers",
        "job.spec.template",
        "deployment.spec.strategy",
        "service.spec.ports",
    ):
        assert "FIELD" in kubectl("explain", path) or "FIELDS" in kubectl("explain", path)
