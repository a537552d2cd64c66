"""Predictors in a namespace that enforces the Pod Security profile `restricted`, as a cluster admits them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.kube import Kube
from serving.objects import Object
from serving.planning.inference import revision
from serving.resources import kinds
from serving.resources.inference import OWN_FRAMEWORKS, Predictor
from serving.resources.tuning.experiment import Prices
from serving.resources.tuning.trial import TrialSpec
from tests.fakes.surroundings import ready_version
from tests.objects.contract_objects import create_dry, eventually, version
from tuner.specs import rendering
from tuner.specs.rendering import TunedTarget
from tuner.trials import trial_deployment
from tuner.trials.cores import Cores

pytestmark = [
    pytest.mark.server_only("Pod Security is a cluster's"),
    pytest.mark.skipif("SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="Pod Security is a cluster's"),
]
OURS = [framework for framework in OWN_FRAMEWORKS if framework != "custom"]
CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
PREDICTOR = {"name": "predictor", "image": "registry.example/server:1"}
ON_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
COMPLETE = {"securityContext": ON_POD, "containers": [{**PREDICTOR, "securityContext": CONTEXT}]}


@pytest.fixture
async def restricted(kube: Kube, namespace: str) -> str:
    """Return a namespace that enforces the profile."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await kube.patch(kinds.NAMESPACE, None, namespace, {"metadata": {"labels": labels}})
    return namespace


def predictor(**fields: Any) -> Predictor:
    return Predictor.model_validate({"name": "stable", "modelVersion": "v1", **fields})


@pytest.mark.parametrize("framework", OURS)
async def test_pod_of_a_runtime_is_admitted(kube: Kube, restricted: str, framework: str) -> None:
    rendered = revision.render("d", framework, predictor(), ready_version("v1", namespace=restricted))
    await create_dry(kube, restricted, "stable", rendered.template)


@pytest.mark.parametrize("framework", OURS)
async def test_pod_of_a_trial_is_admitted(kube: Kube, restricted: str, framework: str) -> None:
    stored = ready_version("v1", namespace=restricted)
    prices = Prices.model_validate({"cpu": "1", "memory": "1"})
    rendered = rendering.pod(TunedTarget("d", framework, predictor()), stored, [], prices)
    spec = TrialSpec(experiment="pe", number=1, template=rendered.template, model_name="d")
    trial: Object = {"metadata": {"name": "pe-1", "namespace": restricted, "uid": "u"}}
    deployment = trial_deployment.deployment(trial, spec, Cores((0,), (1,)), 2)
    await create_dry(kube, restricted, "pe-1", deployment["spec"]["template"])


def inference(namespace: str, name: str, framework: str, *predictors: Object) -> Object:
    arms = [{"modelVersion": "v1", **arm} for arm in predictors]
    return {
        "apiVersion": kinds.INFERENCE.api_version,
        "kind": "Inference",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"framework": framework, "predictors": arms},
    }


async def pods(kube: Kube, namespace: str) -> list[tuple[str, str]]:
    """Inference and arm of each Pod."""
    listed = (await kube.list(kinds.POD, namespace)).items
    labels = [pod["metadata"]["labels"] for pod in listed]
    return sorted((pod["slipway.dev/inference"], pod["slipway.dev/predictor"]) for pod in labels)


async def arm_status(kube: Kube, namespace: str, name: str, arm: str) -> Object:
    stored = await kube.get(kinds.INFERENCE, namespace, name)
    arms = (stored.get("status") or {}).get("predictors") or []
    return next((entry for entry in arms if entry["name"] == arm), {})


@pytest.mark.usefixtures("controllers")
async def test_pods_are_created_and_a_refusal_is_in_the_status_with_the_fields_to_set(
    kube: Kube, restricted: str, tmp_path: Path
) -> None:
    await kube.create(kinds.MODEL_VERSION, version(restricted, tmp_path / "model"))
    ours = inference(restricted, "ours", "sklearn", {"name": "stable"})
    users = inference(
        restricted,
        "users",
        "custom",
        {"name": "complete", "template": COMPLETE},
        {"name": "plain", "template": {"containers": [PREDICTOR]}},
    )
    for body in (ours, users):
        await kube.create(kinds.INFERENCE, body)

    async def pods_exist() -> bool:
        return await pods(kube, restricted) == [("ours", "stable"), ("users", "complete")]

    async def refusal_is_reported() -> bool:
        return (await arm_status(kube, restricted, "users", "plain")).get("reason") == "ReplicaFailure"

    await eventually(pods_exist, seconds=60)
    await eventually(refusal_is_reported, seconds=60)
    message = (await arm_status(kube, restricted, "users", "plain"))["message"]
    assert 'violates PodSecurity "restricted:latest"' in message
    assert 'container "predictor" must set securityContext.allowPrivilegeEscalation=false' in message
    assert "set these fields in the predictor's template" in message
    assert await pods(kube, restricted) == [("ours", "stable"), ("users", "complete")]


def selects(budget: Object) -> Callable[[Object], bool]:
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    return lambda pod: wanted <= pod["metadata"]["labels"].items()


@pytest.mark.usefixtures("controllers")
async def test_budget_selects_the_pods_of_a_predictor_until_one_replica_suffices(
    kube: Kube, restricted: str, tmp_path: Path
) -> None:
    await kube.create(kinds.MODEL_VERSION, version(restricted, tmp_path / "model"))
    two = {"name": "stable", "autoScale": {"minReplicas": 2, "maxReplicas": 2}}
    await kube.create(kinds.INFERENCE, inference(restricted, "d", "sklearn", two, {"name": "one"}))

    async def all_pods_exist() -> bool:
        return await pods(kube, restricted) == [("d", "one"), ("d", "stable"), ("d", "stable")]

    async def budgets() -> list[Object]:
        return (await kube.list(kinds.POD_DISRUPTION_BUDGET, restricted)).items

    async def budget_counts_both() -> bool:
        statuses = [(budget.get("status") or {}).get("expectedPods") for budget in await budgets()]
        return statuses == [2]

    async def budget_is_gone() -> bool:
        return not await budgets()

    await eventually(all_pods_exist, seconds=60)
    await eventually(budget_counts_both, seconds=60)
    (budget,) = await budgets()
    chosen = [pod for pod in (await kube.list(kinds.POD, restricted)).items if selects(budget)(pod)]
    assert [pod["metadata"]["labels"]["slipway.dev/predictor"] for pod in chosen] == ["stable", "stable"]
    fewer = {**two, "autoScale": {"minReplicas": 1, "maxReplicas": 2}, "modelVersion": "v1"}
    predictors = {"spec": {"predictors": [fewer, {"name": "one", "modelVersion": "v1"}]}}
    await kube.patch(kinds.INFERENCE, restricted, "d", predictors)
    await eventually(budget_is_gone, seconds=60)
