"""docs/cluster.md on a cluster with kubelets: install, hand-off, two arms, roll-out, zero, and lost parts.

`make test-nodes` says what it needs. The tests run in the order of this file, each on the objects of the ones
before. The installation and the namespace `walk` stay on the cluster.
"""

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving.objects import Object
from serving.resources import names
from tests.nodes import walk_objects
from tests.nodes.cluster import (
    KUBECONFIG,
    PATIENCE,
    apply,
    await_answers_of,
    await_more,
    await_replicas_on_two_nodes,
    gateway,
    items,
    kill,
    kubectl,
    leader,
    load,
    load_of_service,
    pods,
    predict_through_each_gateway,
    replicas,
    rolled_out,
    wait,
)
from tests.nodes.walk_objects import WalkRegistry
from tests.rig.control_plane import installation
from tests.rig.control_plane.kubectl import needs_kubectl

REGISTRY = os.environ.get("SLIPWAY_NODES_REGISTRY", "")
CA_FILE = os.environ.get("SLIPWAY_NODES_AUTHORITY", "")
CUT_OFF = os.environ.get("SLIPWAY_NODES_CUT_OFF", "")
"""Command that cuts a node off (`COMMAND lose NODE`) and brings it back (`COMMAND return NODE`)."""
LOST_SECONDS = 120
"""Longest time until Kubernetes sets a silent node to not ready, and a gateway removes its endpoints."""
FIRST_WITH_IMAGE_VOLUMES = (2, 1)
"""First version of containerd with image volumes."""
TEMPLATE = {"containers": [{"name": "predictor", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}]}
"""Pod template of the revision that is rolled out."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not KUBECONFIG, reason="`make test-nodes` names a cluster with nodes, and runs this"),
    *needs_kubectl,
]


def both_arms() -> list[Object]:
    return [
        walk_objects.predictor("stable", "digits-v2", 50, template=TEMPLATE),
        walk_objects.predictor("canary", "digits-v1", 50),
    ]


@contextmanager
def cut_off(node: str) -> Iterator[None]:
    """Lose a node during the block."""
    try:
        subprocess.run([*CUT_OFF.split(), "lose", node], check=True)
        yield
    finally:
        subprocess.run([*CUT_OFF.split(), "return", node], check=True)


@pytest.fixture(scope="module")
def registry() -> WalkRegistry:
    return WalkRegistry(REGISTRY, Path(CA_FILE).read_text() if CA_FILE else "")


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory, registry: WalkRegistry) -> Path:
    """The kustomization of the installation, applied to two nodes at least."""
    ready = [
        node["metadata"]["name"]
        for node in items("nodes")
        if not node["spec"].get("unschedulable")
        and ("Ready", "True") in {(c["type"], c["status"]) for c in node["status"]["conditions"]}
    ]
    assert len(ready) > 1, f"needs two nodes that take Pods, and {KUBECONFIG} has {ready}"
    folder = tmp_path_factory.mktemp("slipway")
    walk_objects.write_installation(folder, registry)
    kubectl("apply", "--kustomize", str(folder))
    # Replaces every Pod, as an upgrade does, also where an earlier drain has left all of them on one node.
    kubectl("--namespace=slipway-system", "rollout", "restart", "deployment")
    rolled_out()
    return folder


@pytest.mark.usefixtures("install")
def test_the_output_of_a_job_in_an_empty_dir_becomes_a_version_and_each_gateway_predicts_with_it(
    registry: WalkRegistry,
) -> None:
    for component in ("controllers", "gateway"):
        assert len({pod["spec"]["nodeName"] for pod in pods(component)}) == 2
    apply(
        *walk_objects.namespace_and_model(registry),
        walk_objects.training_job(registry, "digits-v1", "logistic"),
    )
    wait("condition=Complete", "job/train-digits-v1")
    wait("create", "modelversion/digits-v1")
    wait("condition=Ready", "modelversion/digits-v1")
    apply(walk_objects.inference(walk_objects.predictor("stable", "digits-v1", 100)))
    wait("condition=Ready", "inference/digits")
    predict_through_each_gateway()


@pytest.mark.usefixtures("install")
def test_the_output_of_a_job_on_a_claim_becomes_a_version_by_a_job_beside_the_data(
    registry: WalkRegistry,
) -> None:
    name = f"walk-{uuid.uuid4().hex[:8]}"
    node = pods("gateway")[0]["spec"]["nodeName"]
    apply(*walk_objects.claim(name, node), walk_objects.training_job_on_claim(registry, name, name))
    try:
        wait("condition=Complete", f"job/train-{name}")
        wait("create", f"modelversion/{name}")
        wait("condition=Ready", f"modelversion/{name}")
        # The controllers delete the Job once they have read its result: its Events stay.
        started = {
            event["reportingInstance"]
            for event in items(
                "events", f"--namespace={walk_objects.NAMESPACE}", "--field-selector=reason=Started"
            )
            if event["involvedObject"]["name"].startswith(f"capture-{name}-")
        }
        assert started == {node}
    finally:
        kubectl(
            f"--namespace={walk_objects.NAMESPACE}", "delete", f"modelversion/{name}", "--ignore-not-found"
        )
        kubectl(
            f"--namespace={walk_objects.NAMESPACE}",
            "delete",
            f"job/train-{name}",
            f"pvc/{name}",
            "--wait=false",
        )
        kubectl("delete", "pv", name, "--wait=false")


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
def test_no_request_fails_while_a_second_arm_gets_its_weight(registry: WalkRegistry) -> None:
    apply(walk_objects.training_job(registry, "digits-v2", "forest"))
    wait("create", "modelversion/digits-v2")
    wait("condition=Ready", "modelversion/digits-v2")
    with load(gateway()) as answers:
        apply(
            walk_objects.inference(
                walk_objects.predictor("stable", "digits-v1", 50),
                walk_objects.predictor("canary", "digits-v2", 50),
            )
        )
        wait("condition=Ready", "inference/digits")
        assert answers["failed"] == 0, answers
        answers.clear()
        await_more(answers)
    assert answers["failed"] == 0, answers
    # Ten standard deviations of a binomial distribution of 200 are less than this.
    assert 0.14 < answers["canary"] / answers.total() < 0.86


@pytest.mark.usefixtures("install")
def test_no_request_fails_while_a_predictor_rolls_out() -> None:
    before = {pod["metadata"]["name"] for pod in replicas()}
    with load(gateway()) as answers:
        apply(walk_objects.inference(walk_objects.predictor("stable", "digits-v2", 100, template=TEMPLATE)))
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
    at_zero = walk_objects.predictor("stable", "digits-v2", 100, template=TEMPLATE, autoScale=to_zero)
    apply(walk_objects.inference(at_zero))
    deadline = time.monotonic() + 300
    while replicas() and time.monotonic() < deadline:
        time.sleep(1)
    assert replicas() == []
    predict_through_each_gateway()
    apply(walk_objects.inference(walk_objects.predictor("stable", "digits-v2", 100, template=TEMPLATE)))
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
def test_no_request_fails_when_the_leader_is_deleted_and_another_one_carries_out_a_change() -> None:
    deleted = leader()
    with load(gateway()) as answers:
        kill(deleted)
        deadline = time.monotonic() + 60
        while leader() in ("", deleted):
            assert time.monotonic() < deadline, "nobody else leads"
            time.sleep(0.5)
        apply(walk_objects.inference(*both_arms()))
        await_answers_of("canary", answers)
    assert answers["failed"] == 0, answers
    wait("condition=Ready", "inference/digits")
    deadline = time.monotonic() + 60
    while len(deployments := items("deployments", f"--namespace={walk_objects.NAMESPACE}")) != 2:
        assert time.monotonic() < deadline, [deployment["metadata"]["name"] for deployment in deployments]
        time.sleep(1)


@pytest.mark.usefixtures("install")
def test_no_request_fails_at_one_gateway_when_another_one_is_killed() -> None:
    killed, other = (pod["metadata"]["name"] for pod in pods("gateway")[:2])
    with load(other) as answers:
        kill(killed)
        rolled_out()
        await_more(answers)
    assert answers["failed"] == 0, answers


@pytest.mark.usefixtures("install")
def test_no_request_fails_while_controllers_and_gateways_are_replaced() -> None:
    def running() -> set[str]:
        return {pod["metadata"]["name"] for pod in items("pods", "--namespace=slipway-system")}

    rolled_out()
    before = running()
    with load_of_service() as answers:
        kubectl("--namespace=slipway-system", "rollout", "restart", "deployment")
        rolled_out()
        deadline = time.monotonic() + 120
        while left := running() & before:
            assert time.monotonic() < deadline, left
            time.sleep(1)
        await_more(answers)
    assert answers["failed"] == 0, answers


@pytest.mark.usefixtures("install")
def test_no_request_fails_while_a_node_is_drained() -> None:
    rolled_out()
    drained, other = (pod["spec"]["nodeName"] for pod in pods("gateway")[:2])
    assert drained != other
    try:
        with load(gateway(other)) as answers:
            options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={PATIENCE}")
            kubectl("drain", drained, *options)
            await_more(answers)
        assert answers["failed"] == 0, answers
    finally:
        kubectl("uncordon", drained)
    rolled_out()
    predict_through_each_gateway()


@pytest.mark.skipif(not CUT_OFF, reason="`make test-nodes CUT_OFF=COMMAND` loses a node")
@pytest.mark.usefixtures("install")
def test_only_a_request_in_flight_at_the_lost_node_fails_at_the_gateway_of_another_node() -> None:
    # A drain may have left all Pods on one node.
    kubectl("--namespace=slipway-system", "rollout", "restart", "deployment")
    kubectl(
        f"--namespace={walk_objects.NAMESPACE}",
        "delete",
        "pods",
        f"--selector={names.INFERENCE_LABEL}=digits",
    )
    rolled_out()
    await_replicas_on_two_nodes()
    lost, other = (pod["spec"]["nodeName"] for pod in pods("gateway")[:2])
    assert lost != other
    with load(gateway(other)) as answers:
        with cut_off(lost):
            kubectl("wait", "--for=condition=Ready=Unknown", f"node/{lost}", f"--timeout={LOST_SECONDS}s")
            await_more(answers)
        kubectl("wait", "--for=condition=Ready", f"node/{lost}", f"--timeout={PATIENCE}")
        await_more(answers)
    assert answers["failed"] <= 1, answers  # the load has one client
    rolled_out()
    predict_through_each_gateway()
