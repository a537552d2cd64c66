"""The policy of manifests/capture makes of an ordinary Job what the sample `captured-job.yaml` writes out."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from serving import clock
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from tests.rig.control_plane import discovery
from tests.rig.control_plane.convergence import VERDICT_SECONDS
from tests.rig.control_plane.kubectl import KUBECTL, Kubectl

pytestmark = [
    pytest.mark.server_only("admission policies are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="admission policies are a cluster's"
    ),
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]

MANIFESTS = Path(__file__).parents[2] / "manifests"
PARAMETERS = {
    "image": "registry.example.com/slipway/transfer:0.1.0",
    "repositories": "registry.example.com/models",
    "secret": "models",
}


def sample() -> Object:
    [_, job] = yaml.safe_load_all((MANIFESTS / "samples" / "captured-job.yaml").read_text())
    return dict(job)


def ordinary() -> Object:
    """Return the sample's Job as it would be without a container that captures."""
    job = sample()
    job["spec"]["template"]["spec"].update(
        containers=job["spec"]["template"]["spec"].pop("initContainers"),
        volumes=[{"name": "output", "emptyDir": {}}],
        restartPolicy="Never",
    )
    return job


@pytest.fixture
async def policy(kube: Kube, namespace: str) -> AsyncIterator[None]:
    """The policy under a name of its own, with parameters in this namespace."""
    documents = list(yaml.safe_load_all((MANIFESTS / "capture" / "policy.yaml").read_text()))
    for obj in documents:
        obj["metadata"]["name"] += f"-{namespace}"
    documents[1]["spec"]["policyName"] += f"-{namespace}"
    try:
        policy_kinds = [await discovery.kind_of(kube, obj) for obj in documents]
    except AssertionError:
        pytest.skip("the API has no MutatingAdmissionPolicy of v1: Kubernetes 1.36 has it")
    parameters = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slipway-capture", "namespace": namespace},
        "data": PARAMETERS,
    }
    await kube.apply(kinds.CONFIG_MAP, parameters)
    for kind, obj in zip(policy_kinds, documents, strict=True):
        await kube.apply(kind, obj)
    yield
    for kind, obj in zip(policy_kinds, documents, strict=True):
        await kube.delete(kind, None, obj["metadata"]["name"])


def created(kubectl: Kubectl, job: Object) -> dict[str, Any]:
    arguments = ("create", "--dry-run=server", "--validate=false", "-o", "json", "-f", "-")
    text = kubectl(*arguments, stdin=orjson.dumps(job).decode())
    pod = orjson.loads(text[text.index("{") :])["spec"]["template"]["spec"]
    return dict(pod)


async def until_rewritten(kubectl: Kubectl) -> dict[str, Any]:
    """Create an ordinary Job until the API server has compiled the policy; return its Pod."""
    deadline = clock.monotonic() + VERDICT_SECONDS
    while "initContainers" not in (pod := await asyncio.to_thread(created, kubectl, ordinary())):
        assert clock.monotonic() < deadline, pod
        await asyncio.sleep(0.1)
    return pod


def own_fields(value: Any, expected: Any) -> Any:
    """Return the fields of `value` that `expected` has too, as the API adds defaults."""
    if isinstance(expected, dict):
        return {key: own_fields(value.get(key), item) for key, item in expected.items()}
    if isinstance(expected, list) and len(value) == len(expected):
        return [own_fields(*each) for each in zip(value, expected, strict=True)]
    return value


@pytest.mark.usefixtures("policy")
async def test_job_is_rewritten_as_the_sample_with_the_parameters_of_its_namespace(
    contract_kubeconfig: Path, tmp_path: Path, namespace: str
) -> None:
    kubectl = Kubectl(contract_kubeconfig, tmp_path, namespace)
    pod = await until_rewritten(kubectl)
    expected = sample()["spec"]["template"]["spec"]
    text = orjson.dumps(expected).replace(b'"store"', b'"slipway-store"')
    expected = orjson.loads(text.replace(b'"registry-login"', b'"slipway-registry"'))
    assert own_fields(pod, expected) == expected


@pytest.mark.usefixtures("policy")
async def test_job_with_another_output_or_without_a_model_is_unchanged(
    contract_kubeconfig: Path, tmp_path: Path, namespace: str
) -> None:
    kubectl = Kubectl(contract_kubeconfig, tmp_path, namespace)
    await until_rewritten(kubectl)
    on_claim = ordinary()
    on_claim["spec"]["template"]["spec"]["volumes"] = [
        {"name": "output", "persistentVolumeClaim": {"claimName": "trained"}}
    ]
    of_others = ordinary()
    del of_others["metadata"]["annotations"]
    for job in (on_claim, of_others, sample()):
        pod = created(kubectl, job)
        assert [item["name"] for item in pod["containers"]] == [
            item["name"] for item in job["spec"]["template"]["spec"]["containers"]
        ]
