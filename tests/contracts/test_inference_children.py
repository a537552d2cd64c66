"""The API accepts the children of an Inference, and deletes them with it. No Pod runs."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from autoscaler.targets import SCALERS
from serving.kube import Kube
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.patch_types import JSON_PATCH
from tests.objects.contract_objects import eventually, gone, version

PREDICTORS = [
    {
        "name": "stable",
        "modelVersion": "v1",
        "trafficWeight": 9,
        "resources": {"cpu": "500m", "memory": "1Gi"},
        "autoScale": {"minReplicas": 2, "maxReplicas": 3},
        "prefetch": True,
    },
    {
        "name": "own",
        "modelVersion": "v1",
        "template": {
            "containers": [
                {
                    "name": "predictor",
                    "env": [{"name": "A", "value": "1"}],
                    "ports": [{"containerPort": 9090, "name": "more"}],
                },
                {"name": "beside", "image": "slipway.dev/runtimes/python", "args": ["-c", "pass"]},
            ]
        },
    },
]
CHILDREN = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.ROUTE)


def number_of(kube: Kube, namespace: str, kind: kinds.Kind) -> Callable[[], Awaitable[int]]:
    async def number() -> int:
        return len((await kube.list(kind, namespace, labels="slipway.dev/inference=d")).items)

    return number


async def edited_template_is_put_back(kube: Kube, namespace: str) -> None:
    """Add a variable to a Deployment as a user does, and wait until it is gone."""
    labels = "slipway.dev/inference=d,slipway.dev/predictor=stable"
    [deployment] = (await kube.list(kinds.DEPLOYMENT, namespace, labels=labels)).items
    name = deployment["metadata"]["name"]
    path = "/spec/template/spec/containers/0/env/-"
    patch = [{"op": "add", "path": path, "value": {"name": "EVIL", "value": "1"}}]
    await kube.patch(kinds.DEPLOYMENT, namespace, name, patch, content_type=JSON_PATCH)

    async def is_put_back() -> bool:
        stored = await kube.get(kinds.DEPLOYMENT, namespace, name)
        return bool(stored["spec"]["template"] == deployment["spec"]["template"])

    async def event_names_the_writer() -> bool:
        events = await kube.list(kinds.EVENT_V1, namespace, fields="reason=TemplatePutBack")
        return any("slipway-contract had written spec.containers" in e["message"] for e in events.items)

    await eventually(is_put_back, seconds=30)
    await eventually(event_names_the_writer, seconds=30)


@pytest.mark.server_only("the controllers' process connects by a kubeconfig")
@pytest.mark.skipif(
    "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="the controller of HorizontalPodAutoscalers"
)
@pytest.mark.usefixtures("controllers")
async def test_horizontal_pod_autoscaler_scales_a_predictor_when_unmanaged(
    kube: Kube, namespace: str, tmp_path: Path
) -> None:
    """Without metrics of Pods it scales to its bounds, which tell it from Slipway's count."""
    await kube.create(kinds.MODEL_VERSION, version(namespace, tmp_path / "model"))
    predictor = {"name": "only", "modelVersion": "v1", "autoScale": {"managed": False}}
    body = {"apiVersion": kinds.INFERENCE.api_version, "kind": "Inference"}
    spec = {"framework": "sklearn", "predictors": [predictor]}
    await kube.create(
        kinds.INFERENCE, {**body, "metadata": {"name": "d", "namespace": namespace}, "spec": spec}
    )
    target = {"apiVersion": kinds.AUTOSCALER.api_version, "kind": "Autoscaler", "name": "d-only"}
    usage = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    bounds = {"minReplicas": 3, "maxReplicas": 5, "metrics": [{"type": "Resource", "resource": usage}]}
    await kube.create(
        SCALERS,
        {
            "metadata": {"name": "theirs", "namespace": namespace},
            "spec": {"scaleTargetRef": target, **bounds},
        },
    )

    async def replicas_are(count: int) -> bool:
        labels = "slipway.dev/inference=d"
        deployments = (await kube.list(kinds.DEPLOYMENT, namespace, labels=labels)).items
        return [deployment["spec"]["replicas"] for deployment in deployments] == [count]

    await eventually(lambda: replicas_are(3), seconds=90)
    await kube.patch(SCALERS, namespace, "theirs", {"spec": {"minReplicas": 1, "maxReplicas": 2}})
    await eventually(lambda: replicas_are(2), seconds=90)
    [autoscaler_object] = (await kube.list(kinds.AUTOSCALER, namespace)).items
    assert (
        conditions.find(autoscaler_object["status"]["conditions"], "ScalingActive")["reason"] == "Unmanaged"
    )


@pytest.mark.server_only("the controllers' process connects by a kubeconfig")
@pytest.mark.usefixtures("controllers")
async def test_children_of_an_inference_are_accepted_and_deleted_with_it(
    kube: Kube, namespace: str, tmp_path: Path
) -> None:
    created = await kube.create(kinds.MODEL_VERSION, version(namespace, tmp_path / "model"))
    spec = {
        "framework": "sklearn",
        "predictors": PREDICTORS,
        "routing": {"sticky": {"header": "x-user-id"}},
    }
    body = {"apiVersion": kinds.INFERENCE.api_version, "kind": "Inference", "spec": spec}
    await kube.create(kinds.INFERENCE, {**body, "metadata": {"name": "d", "namespace": namespace}})
    numbers = {kind: number_of(kube, namespace, kind) for kind in CHILDREN}

    async def children_exist() -> bool:
        return [await number() for number in numbers.values()] == [2, 2, 2, 1]

    async def children_are_gone() -> bool:
        return not any([await number() for number in numbers.values()])

    async def model_is_ready() -> bool:
        return conditions.is_true(await kube.get(kinds.INFERENCE, namespace, "d"), "ModelReady")

    async def build_events_exist() -> bool:
        events = await kube.list(
            kinds.EVENT_V1, namespace, fields=f"involvedObject.uid={created['metadata']['uid']}"
        )
        return {"Building", "Built"} <= {event["reason"] for event in events.items}

    await eventually(children_exist, seconds=30)
    await eventually(model_is_ready, seconds=30)
    await eventually(build_events_exist, seconds=30)
    status = (await kube.get(kinds.INFERENCE, namespace, "d"))["status"]
    prefetched = conditions.find(status["conditions"], "Prefetched")
    assert (prefetched["reason"] == "NotNeeded") == ("SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ)
    route = await kube.get(kinds.ROUTE, namespace, "d")
    assert {backend["arm"] for backend in route["spec"]["backends"]} == {"stable", "own"}
    assert (await kube.get(kinds.MODEL, namespace, "m"))["metadata"]["uid"]
    await edited_template_is_put_back(kube, namespace)
    await kube.delete(kinds.INFERENCE, namespace, "d")
    await eventually(lambda: gone(kube, kinds.INFERENCE, namespace, "d"), seconds=30)
    await eventually(children_are_gone, seconds=30)
