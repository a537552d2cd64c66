"""docs/cluster.md on a cluster with kubelets: install, hand-off, two arms, roll-out, zero, and lost parts.

`make test-nodes` says what it needs. The tests run in the order of this file, each on the objects of the ones
before. The installation and the namespace `walk` stay on the cluster.
"""

import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from serving.objects import Object
from serving.resources import names
from tests.nodes import story
from tests.nodes.story import Registry
from tests.rig.control_plane import installation
from tests.rig.control_plane.kubectl import KUBECTL, needs_kubectl

KUBECONFIG = os.environ.get("SLIPWAY_NODES_KUBECONFIG", "")
REGISTRY = os.environ.get("SLIPWAY_NODES_REGISTRY", "")
AUTHORITY = os.environ.get("SLIPWAY_NODES_AUTHORITY", "")
PATIENCE = "300s"
"""For the pull of images of a gigabyte, and the start of everything after it."""
FIRST_WITH_IMAGE_VOLUMES = (2, 1)
"""Of containerd."""
INPUTS = [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]
TEMPLATE = {"containers": [{"name": "predictor", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}]}
"""Of the revision that is rolled out."""
PATH = f"/{story.NAMESPACE}/digits/v2/models/digits/infer"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not KUBECONFIG, reason="`make test-nodes` names a cluster with nodes, and runs this"),
    *needs_kubectl,
]


def kubectl(*arguments: str, objects: Sequence[Object] = ()) -> str:
    """Run kubectl, with these objects as its input."""
    assert KUBECTL is not None
    ended = subprocess.run(
        [KUBECTL, f"--kubeconfig={KUBECONFIG}", *arguments],
        input=orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}).decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
    return ended.stdout


def apply(*objects: Object) -> None:
    kubectl("apply", "--filename=-", objects=objects)


def wait(condition: str, obj: str, namespace: str = story.NAMESPACE) -> None:
    kubectl(f"--namespace={namespace}", "wait", f"--for={condition}", obj, f"--timeout={PATIENCE}")


def items(*arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = orjson.loads(kubectl("get", *arguments, "--output=json"))["items"]
    return listed


def running(namespace: str, selector: str) -> list[dict[str, Any]]:
    """Return the Pods that do not end."""
    listed = items("pods", f"--namespace={namespace}", f"--selector={selector}")
    return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]


def pods(component: str) -> list[dict[str, Any]]:
    return running("slipway-system", f"app.kubernetes.io/component={component}")


def replicas() -> list[dict[str, Any]]:
    return running(story.NAMESPACE, f"{names.INFERENCE_LABEL}=digits")


def rolled_out() -> None:
    kubectl("--namespace=slipway-system", "rollout", "status", "deployment", f"--timeout={PATIENCE}")


@contextmanager
def forwarded(pod: str) -> Iterator[str]:
    """Yield the URL of a gateway's listener, through the API server and the kubelet."""
    assert KUBECTL is not None
    command = [
        KUBECTL,
        f"--kubeconfig={KUBECONFIG}",
        "--namespace=slipway-system",
        "port-forward",
        pod,
        ":8080",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"127\.0\.0\.1:[0-9]+", process.stdout.readline())
            assert address is not None
            yield f"http://{address[0]}"
        finally:
            process.terminate()


def predict(client: httpx.Client) -> httpx.Response:
    """Send a prediction of the digits' models; fail unless it is answered."""
    answer = client.post(PATH, json={"inputs": INPUTS})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["outputs"][0]["data"]) == 1
    return answer


def predict_through_each_gateway() -> None:
    for pod in pods("gateway"):
        with forwarded(pod["metadata"]["name"]) as url, httpx.Client(base_url=url, timeout=60) as client:
            predict(client)


@contextmanager
def load() -> Iterator[Counter[str]]:
    """Predict through one gateway during the block; yield the answers by arm, failures as `failed`."""
    answers: Counter[str] = Counter()
    ended = threading.Event()

    def send(client: httpx.Client) -> None:
        while not ended.is_set():
            try:
                answers[predict(client).headers[names.ARM_HEADER]] += 1
            except Exception as error:  # noqa: BLE001 any other answer is a failure too
                answers["failed"] += 1
                answers[f"failed: {error}"[:200]] += 1
            time.sleep(0.02)

    gateway = pods("gateway")[0]["metadata"]["name"]
    with forwarded(gateway) as url, httpx.Client(base_url=url, timeout=60) as client:
        thread = threading.Thread(target=send, args=[client])
        thread.start()
        try:
            yield answers
        finally:
            ended.set()
            thread.join()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry(REGISTRY, Path(AUTHORITY).read_text() if AUTHORITY else "")


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Path:
    """The kustomization of the installation, applied to two nodes at least."""
    ready = [
        node["metadata"]["name"]
        for node in items("nodes")
        if not node["spec"].get("unschedulable")
        and ("Ready", "True") in {(c["type"], c["status"]) for c in node["status"]["conditions"]}
    ]
    assert len(ready) > 1, f"needs two nodes that take Pods, and {KUBECONFIG} has {ready}"
    folder = tmp_path_factory.mktemp("slipway")
    story.write_installation(folder, registry)
    kubectl("apply", "--kustomize", str(folder))
    # Replaces every Pod, as an upgrade does, also where an earlier drain has left all of them on one node.
    kubectl("--namespace=slipway-system", "rollout", "restart", "deployment")
    rolled_out()
    return folder


@pytest.mark.usefixtures("install")
def test_the_output_of_a_job_in_an_empty_dir_becomes_a_version_and_each_gateway_predicts_with_it(
    registry: Registry,
) -> None:
    for component in ("controllers", "gateway"):
        assert len({pod["spec"]["nodeName"] for pod in pods(component)}) == 2
    apply(*story.surroundings(registry), story.training_job(registry, "digits-v1", "logistic"))
    wait("condition=Complete", "job/train-digits-v1")
    wait("create", "modelversion/digits-v1")
    wait("condition=Ready", "modelversion/digits-v1")
    apply(story.inference(story.predictor("stable", "digits-v1", 100)))
    wait("condition=Ready", "inference/digits")
    predict_through_each_gateway()


@pytest.mark.usefixtures("install")
def test_a_replica_has_an_image_volume_where_every_node_has_them_and_else_a_copy() -> None:
    runtimes = [node["status"]["nodeInfo"]["containerRuntimeVersion"] for node in items("nodes")]
    versions = [
        tuple(map(int, version.removeprefix("containerd://").split(".")[:2]))
        for version in runtimes
        if version.startswith("containerd://")
    ]
    have_volumes = len(versions) == len(runtimes) and min(versions) >= FIRST_WITH_IMAGE_VOLUMES
    for pod in replicas():
        assert any("image" in volume for volume in pod["spec"]["volumes"]) == have_volumes
        assert ("initContainers" in pod["spec"]) != have_volumes


@pytest.mark.usefixtures("install")
def test_no_request_fails_while_a_second_arm_gets_its_weight(registry: Registry) -> None:
    apply(story.training_job(registry, "digits-v2", "forest"))
    wait("create", "modelversion/digits-v2")
    wait("condition=Ready", "modelversion/digits-v2")
    with load() as answers:
        apply(
            story.inference(
                story.predictor("stable", "digits-v1", 50), story.predictor("canary", "digits-v2", 50)
            )
        )
        wait("condition=Ready", "inference/digits")
        assert answers["failed"] == 0, answers
        answers.clear()
        deadline = time.monotonic() + 60
        while answers.total() < 200 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert answers["failed"] == 0, answers
    # Ten standard deviations of a binomial distribution of 200 are less than this.
    assert 0.14 < answers["canary"] / answers.total() < 0.86


@pytest.mark.usefixtures("install")
def test_no_request_fails_while_a_predictor_rolls_out() -> None:
    before = {pod["metadata"]["name"] for pod in replicas()}
    with load() as answers:
        apply(story.inference(story.predictor("stable", "digits-v2", 100, template=TEMPLATE)))
        deadline = time.monotonic() + 300
        while {pod["metadata"]["name"] for pod in replicas()} & before and time.monotonic() < deadline:
            time.sleep(1)
        wait("condition=Ready", "inference/digits")
    assert not {pod["metadata"]["name"] for pod in replicas()} & before
    assert answers["failed"] == 0, answers
    assert answers["stable"] > 10


@pytest.mark.usefixtures("install")
def test_a_request_is_answered_when_it_finds_no_replica() -> None:
    to_zero = {"minReplicas": 0, "maxReplicas": 2, "behavior": {"scaleToZero": {"idleSeconds": 5}}}
    at_zero = story.predictor("stable", "digits-v2", 100, template=TEMPLATE, autoScale=to_zero)
    apply(story.inference(at_zero))
    deadline = time.monotonic() + 300
    while replicas() and time.monotonic() < deadline:
        time.sleep(1)
    assert replicas() == []
    predict_through_each_gateway()
    apply(story.inference(story.predictor("stable", "digits-v2", 100, template=TEMPLATE)))
    wait("condition=Ready", "inference/digits")


def test_each_gateway_predicts_when_the_controllers_were_removed(install: Path) -> None:
    try:
        for kinds, name in installation.removals_of_controllers():
            kubectl("--namespace=slipway-system", "delete", ",".join(kinds), name)
        selector = "--selector=app.kubernetes.io/component=controllers"
        kubectl(
            "--namespace=slipway-system", "wait", "--for=delete", "pod", selector, f"--timeout={PATIENCE}"
        )
        predict_through_each_gateway()
    finally:
        kubectl("apply", "--kustomize", str(install))
    rolled_out()


@pytest.mark.usefixtures("install")
def test_the_installation_is_whole_and_predicts_when_a_node_was_drained() -> None:
    node = pods("gateway")[0]["spec"]["nodeName"]
    try:
        options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={PATIENCE}")
        kubectl("drain", node, *options)
        remaining = pods("gateway")
        serving = [pod for pod in remaining if pod["spec"].get("nodeName") not in (None, node)]
        assert serving
        name = serving[0]["metadata"]["name"]
        with forwarded(name) as url, httpx.Client(base_url=url, timeout=60) as client:
            predict(client)
    finally:
        kubectl("uncordon", node)
    rolled_out()
    predict_through_each_gateway()
