"""A cluster accepts the Pods of a predictor whose model is copied, and stores them as they are rendered."""

import os

import pytest

from serving import errors
from serving.kube import Kube, VersionReader
from serving.objects import Object
from serving.planning.inference import model_volume, revision
from serving.planning.inference.comparison.drift import covers
from serving.resources import kinds
from serving.resources.inference import Predictor
from serving.settings import RuntimeImageSettings
from tests.fakes.surroundings import ready_version
from tests.objects.contract_objects import eventually

pytestmark = [
    pytest.mark.server_only("admission and defaults are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="admission and defaults are a cluster's"
    ),
]

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
IMAGES = RuntimeImageSettings("registry.example.com/slipway", "0.1.0", pull_secret="login")
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def template() -> Object:
    """Return the Pod template of a predictor with limits, a pull Secret and a server without rights."""
    spec = {
        "name": "stable",
        "modelVersion": "v1",
        "resources": {"cpu": "500m", "memory": "1Gi"},
        "template": {"containers": [{"name": "predictor", "securityContext": RESTRICTED}]},
    }
    version = ready_version("v1")
    version["status"] |= {"size": 3_000_000}
    predictor = Predictor.model_validate(spec)
    return revision.render("d", "sklearn", predictor, version, images=IMAGES, volume="copy").template


async def created_pod(kube: Kube, namespace: str) -> Object:
    """Create a Pod of the template as soon as the namespace has its service account."""
    rendered = template()
    body = {"metadata": {**rendered["metadata"], "name": "copied", "namespace": namespace}}
    pods: list[Object] = []

    async def is_created() -> bool:
        try:
            pods.append(await kube.create(kinds.POD, {**body, "spec": rendered["spec"]}))
        except errors.Forbidden as error:
            if "service account" not in str(error) and "serviceaccount" not in str(error):
                raise
            return False
        return True

    await eventually(is_created, seconds=30)
    return pods[0]


async def test_a_deployment_is_stored_as_rendered(kube: Kube, namespace: str) -> None:
    rendered = template()
    labels = {"matchLabels": rendered["metadata"]["labels"]}
    body = {"metadata": {"name": "copied", "namespace": namespace}}
    spec = {"replicas": 0, "selector": labels, "template": rendered}
    stored = await kube.apply(kinds.DEPLOYMENT, {**body, "spec": spec})
    assert covers(stored["spec"]["template"], rendered), "the controller would put the template back for ever"


async def test_the_copier_has_no_token_and_the_server_has_one(kube: Kube, namespace: str) -> None:
    pod = await created_pod(kube, namespace)
    (copier,), (server,) = pod["spec"]["initContainers"], pod["spec"]["containers"]

    def token(container: Object) -> list[str]:
        mounts = container["volumeMounts"]
        return [mount["name"] for mount in mounts if mount["mountPath"] == TOKEN_MOUNT]

    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    (covering,), (real,) = token(copier), token(server)
    assert "emptyDir" in volumes[covering]
    assert "projected" in volumes[real]
    assert pod["status"]["qosClass"] == "Guaranteed"


async def test_a_namespace_with_the_restricted_profile_accepts_the_copier(kube: Kube, namespace: str) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await kube.patch(kinds.NAMESPACE, None, namespace, enforced)
    pod = await created_pod(kube, namespace)
    assert pod["spec"]["initContainers"][0]["name"] == model_volume.COPIER


async def test_the_versions_of_the_cluster_are_those_of_its_nodes(kube: Kube) -> None:
    versions = await VersionReader(kube).read()
    nodes = (await kube.list(kinds.NODE)).items
    assert versions.server.startswith("v1.")
    assert {name: node.kubelet for name, node in versions.nodes.items()} == {
        node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes
    }
