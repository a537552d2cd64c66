"""docs/cluster.md on a cluster with kubelets: install, a model, predictions, and the drain of a node.

`make test-nodes` says what it needs. The installation and the model stay on the cluster.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import yaml

from tests.rig.control_plane import installation
from tests.rig.control_plane.kubectl import KUBECTL, needs_kubectl

KUBECONFIG = os.environ.get("SLIPWAY_NODES_KUBECONFIG", "")
INSTALL = os.environ.get("SLIPWAY_NODES_INSTALL", "")
MODEL = os.environ.get("SLIPWAY_NODES_MODEL", "")
PATIENCE = "300s"
"""For the pull of images of a gigabyte, and the start of everything after it."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KUBECONFIG, reason="`make test-nodes` names a cluster with nodes, and runs this"),
    *needs_kubectl,
]


def kubectl(*arguments: str) -> str:
    assert KUBECTL is not None
    ended = subprocess.run(
        [KUBECTL, f"--kubeconfig={KUBECONFIG}", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
    return ended.stdout


def items(*arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = orjson.loads(kubectl("get", *arguments, "--output=json"))["items"]
    return listed


def pods(component: str) -> list[dict[str, Any]]:
    """Return the Pods of a component that do not end."""
    selector = f"--selector=app.kubernetes.io/component={component}"
    listed = items("pods", "--namespace=slipway-system", selector)
    return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]


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


def predict(pod: str, inference: dict[str, Any]) -> None:
    """Send a prediction of the digits' models through one gateway."""
    namespace, name = inference["metadata"]["namespace"], inference["metadata"]["name"]
    inputs = [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]
    with forwarded(pod) as url:
        target = f"{url}/{namespace}/{name}/v2/models/{name}/infer"
        answer = httpx.post(target, json={"inputs": inputs}, timeout=30)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["outputs"][0]["data"]) == 1


@pytest.fixture(scope="module")
def inference() -> dict[str, Any]:
    """The Inference, Ready on an installation that has just been applied."""
    ready = [
        node["metadata"]["name"]
        for node in items("nodes")
        if not node["spec"].get("unschedulable")
        and ("Ready", "True") in {(c["type"], c["status"]) for c in node["status"]["conditions"]}
    ]
    assert len(ready) > 1, f"needs two nodes that take Pods, and {KUBECONFIG} has {ready}"
    kubectl("apply", "--kustomize", INSTALL)
    # Replaces every Pod, as an upgrade does, also where an earlier drain has left all of them on one node.
    kubectl("--namespace=slipway-system", "rollout", "restart", "deployment")
    rolled_out()
    kubectl("apply", "--filename", MODEL)
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(Path(MODEL).read_text()))
    (body,) = (manifest for manifest in manifests if manifest["kind"] == "Inference")
    namespace, name = f"--namespace={body['metadata']['namespace']}", f"inference/{body['metadata']['name']}"
    kubectl(namespace, "wait", "--for=condition=Ready", name, f"--timeout={PATIENCE}")
    return body


@pytest.mark.timeout(900)
def test_each_gateway_predicts_and_components_are_on_two_nodes_when_upgraded(
    inference: dict[str, Any],
) -> None:
    for component in ("controllers", "gateway"):
        assert len({pod["spec"]["nodeName"] for pod in pods(component)}) == 2
    for pod in pods("gateway"):
        predict(pod["metadata"]["name"], inference)


@pytest.mark.timeout(900)
def test_the_installation_is_whole_and_predicts_when_a_node_was_drained(inference: dict[str, Any]) -> None:
    node = pods("gateway")[0]["spec"]["nodeName"]
    try:
        options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={PATIENCE}")
        kubectl("drain", node, *options)
        remaining = pods("gateway")
        serving = [pod for pod in remaining if pod["spec"].get("nodeName") not in (None, node)]
        assert serving
        predict(serving[0]["metadata"]["name"], inference)
    finally:
        kubectl("uncordon", node)
    rolled_out()
    for pod in pods("gateway"):
        predict(pod["metadata"]["name"], inference)


@pytest.mark.timeout(900)
def test_each_gateway_predicts_when_the_controllers_were_removed(inference: dict[str, Any]) -> None:
    try:
        for kinds, name in installation.removals_of_controllers():
            kubectl("--namespace=slipway-system", "delete", ",".join(kinds), name)
        selector = "--selector=app.kubernetes.io/component=controllers"
        kubectl(
            "--namespace=slipway-system", "wait", "--for=delete", "pod", selector, f"--timeout={PATIENCE}"
        )
        for pod in pods("gateway"):
            predict(pod["metadata"]["name"], inference)
    finally:
        kubectl("apply", "--kustomize", INSTALL)
    rolled_out()
    kubectl(
        "--namespace=slipway-system", "wait", "--for=condition=Available", "deployment/slipway-controllers"
    )
