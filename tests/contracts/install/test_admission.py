"""Admission policies of an installation: errors in objects of other kinds are refused or warned of early."""

import asyncio
import copy
import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from serving import clock
from serving.objects import Object
from tests.rig.control_plane.convergence import VERDICT_SECONDS
from tests.rig.control_plane.kubectl import KUBECTL, Kubectl

pytestmark = [
    pytest.mark.server_only("admission policies are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="admission policies are a cluster's"
    ),
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: it prints warnings"),
    pytest.mark.usefixtures("installed"),
]

POLICY = "ValidatingAdmissionPolicy"
"""In each warning of ours; other warnings are of Pod security."""
CLAIM = {"name": "output", "persistentVolumeClaim": {"claimName": "trained"}}
EMPTY_DIR = {"name": "output", "emptyDir": {}}
CAPTURE = {
    "name": "capture",
    "image": "slipway",
    "env": [{"name": "SLIPWAY_OUTPUT_DIR", "value": "/out/model"}, {"name": "SLIPWAY_CAPTURE_REPOSITORY"}],
    "volumeMounts": [{"name": "output", "mountPath": "/out"}],
}


def job(annotations: dict[str, str], volume: Object = CLAIM) -> Object:
    trainer = {
        "name": "train",
        "image": "train",
        "env": [{"name": "SLIPWAY_OUTPUT_DIR", "value": "/out/model"}],
        "volumeMounts": [{"name": "output", "mountPath": "/out"}],
    }
    pod = {"restartPolicy": "Never", "containers": [trainer], "volumes": [volume]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": annotations},
        "spec": {"template": {"spec": pod}},
    }


@pytest.fixture
def kubectl(contract_kubeconfig: Path, tmp_path: Path, namespace: str) -> Kubectl:
    return Kubectl(contract_kubeconfig, tmp_path, namespace)


async def until(output: Callable[[], str], text: str) -> str:
    """Ask again until the API server has compiled the policies."""
    deadline = clock.monotonic() + VERDICT_SECONDS
    while text not in (printed := await asyncio.to_thread(output)):
        assert clock.monotonic() < deadline, printed
        await asyncio.sleep(0.1)
    return printed


def creation(kubectl: Kubectl, obj: Object) -> Callable[[], str]:
    """Return a function that creates an object by a dry run, and returns the whole output of kubectl."""

    def create() -> str:
        process = kubectl.start("create", "--dry-run=server", "--validate=false", "-f", "-")
        output, _ = process.communicate(orjson.dumps(obj).decode(), timeout=20)
        return f"{output}exit code {process.returncode}"

    return create


@pytest.mark.parametrize(
    "annotations",
    [
        {"slipway.dev/model": "Digits"},
        {"slipway.dev/model": "digits", "slipway.dev/model-version": "digits_2"},
        {"slipway.dev/model": "d" * 64},
        {"slipway.dev/model": "digits.v1"},
        {"slipway.dev/model": "digits", "slipway.dev/model-version": "digits-v1.2"},
    ],
    ids=["model", "version", "long", "model with a dot", "version with a dot"],
)
async def test_job_whose_annotations_are_no_names_is_refused(
    kubectl: Kubectl, annotations: dict[str, str]
) -> None:
    output = await until(creation(kubectl, job(annotations)), "must be names of objects")
    assert all(value in output for value in annotations.values())
    assert "exit code 1" in output


async def test_job_of_a_model_and_job_of_others_are_admitted_without_a_warning(kubectl: Kubectl) -> None:
    await until(creation(kubectl, job({"slipway.dev/model": "_"})), "must be names of objects")
    for annotations in ({"slipway.dev/model": "digits", "slipway.dev/model-version": "digits-2"}, {"a": "_"}):
        output = creation(kubectl, job(annotations))()
        assert "created" in output
        assert POLICY not in output
    others = job({"a": "b"}, EMPTY_DIR)
    assert POLICY not in creation(kubectl, others)()


async def test_model_that_no_version_can_name_is_refused(kubectl: Kubectl) -> None:
    def model(name: str) -> Object:
        return {"apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": {}}

    await until(creation(kubectl, model("digits.v1")), "the name of a Model must be")
    assert "exit code 1" in creation(kubectl, model("d" * 64))()
    assert "created" in creation(kubectl, model("d" * 63))()


async def test_job_whose_output_ends_with_its_pod_is_warned_of(kubectl: Kubectl) -> None:
    lost = job({"slipway.dev/model": "digits"}, EMPTY_DIR)
    output = await until(creation(kubectl, lost), "the output is in an emptyDir")
    assert "created" in output
    captured = copy.deepcopy(lost)
    pod = captured["spec"]["template"]["spec"]
    pod["initContainers"], pod["containers"] = pod["containers"], [CAPTURE]
    assert POLICY not in creation(kubectl, captured)()
    silent = copy.deepcopy(lost)
    del silent["spec"]["template"]["spec"]["containers"][0]["env"]
    assert "no container has a variable SLIPWAY_OUTPUT_DIR" in creation(kubectl, silent)()


async def test_namespace_with_an_unknown_rule_of_its_model_policy_is_refused(kubectl: Kubectl) -> None:
    def namespace(policy: str) -> Object:
        metadata = {"name": "policy-of-models", "annotations": {"slipway.dev/model-policy": policy}}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    output = await until(creation(kubectl, namespace("signed,nocode")), "must have noCode and signed")
    assert "got 'signed,nocode'" in output
    assert "created" in creation(kubectl, namespace("signed, noCode"))()


async def test_edit_of_a_deployment_of_an_inference_warns_that_it_is_undone(kubectl: Kubectl) -> None:
    labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/inference": "digits"}
    selector = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "digits-a", "labels": labels},
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }
    kubectl("create", "--validate=false", "-f", "-", stdin=orjson.dumps(deployment).decode())
    edits = iter(range(1000))

    def edit() -> str:
        return kubectl("set", "env", "deployment/digits-a", f"X={next(edits)}")

    output = await until(edit, "is written by Slipway")
    assert "change the Inference digits" in output
