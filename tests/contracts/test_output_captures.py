"""A cluster accepts the Jobs that capture outputs, and their Pods under the profile `restricted`."""

import os
from collections.abc import AsyncIterator

import pytest

from serving.kube import Kube
from serving.objects import Object
from serving.planning.models import capture_job, job_output
from serving.resources import kinds
from serving.resources.model import ModelSpec
from serving.settings import RuntimeImageSettings
from tests.objects import finished_jobs
from tests.objects.contract_objects import eventually

pytestmark = [
    pytest.mark.server_only("admission and defaults are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="admission and defaults are a cluster's"
    ),
]

IMAGES = RuntimeImageSettings("registry.example.com/slipway", "0.1.0", pull_secret="login")
OF_USER: Object = {
    "securityContext": {"runAsUser": 1000, "fsGroup": 100, "supplementalGroups": [7]},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


@pytest.fixture
async def version(kube: Kube, namespace: str) -> AsyncIterator[Object]:
    """The owner of a capture Job; it must not outlive the test, as other tests run the controllers."""
    spec = {"modelName": "digits", "source": {"job": {"name": "train"}}}
    yield await kube.create(
        kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": namespace}, "spec": spec}
    )
    await kube.delete(kinds.MODEL_VERSION, namespace, "v1")


async def created(kube: Kube, version: Object, volume: Object, pod: Object | None = None) -> Object:
    """Create the capture Job of a ModelVersion."""
    job = finished_jobs.training(volume, pod=pod)
    output = job_output.of_job(job, [finished_jobs.pod_of(job)])
    policy = ModelSpec.model_validate(
        {"registry": {"repository": "registry.example.com/models/digits", "secretName": "login"}}
    )
    return await kube.create(
        kinds.JOB, capture_job.render(capture_job.Capture(version, job, output, policy), IMAGES)
    )


@pytest.mark.parametrize("volume", [finished_jobs.CLAIM, finished_jobs.NFS, finished_jobs.HOST_PATH])
async def test_a_capture_job_is_stored_as_rendered(kube: Kube, version: Object, volume: Object) -> None:
    stored = await created(kube, version, volume)
    spec = stored["spec"]["template"]["spec"]
    assert volume.keys() <= spec["volumes"][0].keys()
    assert "nodeAffinity" in spec["affinity"]
    assert len(stored["spec"]["podFailurePolicy"]["rules"]) == 2


async def test_a_namespace_with_the_restricted_profile_accepts_the_pod_of_a_capture(
    kube: Kube, namespace: str, version: Object
) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await kube.patch(kinds.NAMESPACE, None, namespace, enforced)
    job = await created(kube, version, finished_jobs.CLAIM, OF_USER)
    labels = f"batch.kubernetes.io/job-name={job['metadata']['name']}"

    async def has_pod() -> bool:
        return bool((await kube.list(kinds.POD, namespace, labels=labels)).items)

    await eventually(has_pod, seconds=30)
