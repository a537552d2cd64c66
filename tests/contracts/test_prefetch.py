"""A cluster keeps the DaemonSet of a predictor with `prefetch` as it is rendered, and reports its nodes.

No image is fetched: no node has the label that the predictor asks for.
"""

import dataclasses
import os
from pathlib import Path

import pytest

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.planning.inference import prefetch, revision
from serving.planning.inference.comparison.drift import covers
from serving.resources import kinds
from serving.resources.inference import Predictor
from serving.resources.kubernetes import conditions
from serving.settings import DEFAULTS, RuntimeImageSettings, Settings
from tests.fakes.surroundings import ready_version
from tests.objects.contract_objects import eventually, gone, version

pytestmark = [
    pytest.mark.server_only("DaemonSets and image volumes are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ,
        reason="DaemonSets and image volumes (Kubernetes 1.35) are a cluster's",
    ),
]

IMAGES = RuntimeImageSettings("registry.example.com/slipway", "0.1.0", pull_secret="login")
TERM = {"matchExpressions": [{"key": "slipway.dev/contract", "operator": "In", "values": ["none"]}]}
PLACEMENT = {
    "nodeSelector": {"slipway.dev/contract": "none"},
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
    },
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "models", "effect": "NoSchedule"}],
}
STABLE = {
    "name": "stable",
    "modelVersion": "v1",
    "prefetch": True,
    "resources": {"cpu": "500m", "memory": "1Gi", "gpu": {"memory": "4Gi"}},
    "template": PLACEMENT,
}


@pytest.fixture
def controller_settings() -> Settings:
    """Return settings with image volumes on nodes of any kind."""
    return dataclasses.replace(DEFAULTS, models=dataclasses.replace(DEFAULTS.models, volume="image"))


def rendered() -> Object:
    """Return the spec of a DaemonSet."""
    predictor = Predictor.model_validate(STABLE)
    newest = revision.render("d", "pytorch", predictor, ready_version("v1", "pytorch"), images=IMAGES)
    return prefetch.daemon_set_spec(newest, IMAGES)


async def test_a_daemon_set_is_stored_as_rendered(kube: Kube, namespace: str) -> None:
    spec = rendered()
    body = {"metadata": {"name": "d-stable-0", "namespace": namespace}, "spec": spec}
    stored = await kube.apply(kinds.DAEMON_SET, body)
    assert covers(stored["spec"], spec), "the controller would apply it at every reconcile"
    again = await kube.apply(kinds.DAEMON_SET, body)
    assert again["metadata"]["generation"] == stored["metadata"]["generation"]


async def test_a_namespace_with_the_restricted_profile_admits_the_pod_without_a_token(
    kube: Kube, namespace: str
) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await kube.patch(kinds.NAMESPACE, None, namespace, enforced)
    body = {"metadata": {"name": "waits", "namespace": namespace}, "spec": rendered()["template"]["spec"]}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    admitted: list[Object] = []

    async def is_admitted() -> bool:
        try:
            admitted.append(await kube.request("POST", kinds.POD.path(namespace), body=body, query=query))
        except errors.Forbidden as error:
            if "service account" not in str(error) and "serviceaccount" not in str(error):
                raise
            return False
        return True

    await eventually(is_admitted, seconds=30)
    (pod,) = admitted
    assert all("image" in volume for volume in pod["spec"]["volumes"])
    assert pod["status"]["qosClass"] == "Burstable"


@pytest.mark.usefixtures("controllers")
async def test_the_nodes_of_a_daemon_set_are_in_the_status_until_its_inference_is_deleted(
    kube: Kube, namespace: str, tmp_path: Path
) -> None:
    await kube.create(kinds.MODEL_VERSION, version(namespace, tmp_path / "model"))
    stable = {field: value for field, value in STABLE.items() if field != "resources"}
    spec = {"framework": "sklearn", "predictors": [stable]}
    await kube.create(kinds.INFERENCE, {"metadata": {"name": "d", "namespace": namespace}, "spec": spec})

    async def daemon_sets() -> list[Object]:
        return (await kube.list(kinds.DAEMON_SET, namespace, labels="slipway.dev/inference=d")).items

    async def is_reported() -> bool:
        return conditions.is_true(await kube.get(kinds.INFERENCE, namespace, "d"), "Prefetched")

    async def is_put_back() -> bool:
        return [covers(stored["spec"], before["spec"]) for stored in await daemon_sets()] == [True]

    async def are_gone() -> bool:
        return not await daemon_sets()

    await eventually(is_reported, seconds=60)
    status = (await kube.get(kinds.INFERENCE, namespace, "d"))["status"]
    assert status["predictors"][0]["prefetch"] == {"nodes": 0, "readyNodes": 0}
    (before,) = await daemon_sets()
    (deployment,) = (await kube.list(kinds.DEPLOYMENT, namespace)).items
    name = before["metadata"]["name"]
    assert name == deployment["metadata"]["name"]
    edit = {"spec": {"template": {"spec": {"nodeSelector": {"slipway.dev/contract": "other"}}}}}
    await kube.patch(kinds.DAEMON_SET, namespace, name, edit)
    await eventually(is_put_back, seconds=30)
    await kube.delete(kinds.INFERENCE, namespace, "d")
    await eventually(lambda: gone(kube, kinds.INFERENCE, namespace, "d"), seconds=30)
    await eventually(are_gone, seconds=30)
