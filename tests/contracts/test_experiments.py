"""The tuner's kinds: invalid specs are refused with their path, and immutable fields cannot change."""

from typing import Any

import pytest

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds


def experiment(namespace: str, **spec: Any) -> Object:
    parameters = [{"name": "cpu", "feasibleSpace": {"list": ["500m", "1", 2]}}]
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ProfilingExperiment",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {
            "target": {"inference": "digits"},
            "tunableParameters": [{"category": "resource", "parameters": parameters}],
        }
        | spec,
    }


def trial(namespace: str, **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "predictor", "env": [{"name": "A", "value": "1"}]}]}}
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Trial",
        "metadata": {"name": "digits-1", "namespace": namespace},
        "spec": {"experiment": "digits", "number": 1, "modelName": "digits", "template": template} | spec,
    }


def profile(namespace: str, **spec: Any) -> Object:
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "CapacityProfile",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {"modelDigest": "sha256:0", "points": [{"level": 4, "throughput": 120.5}]} | spec,
    }


def category(name: str, parameter: str = "cpu", type_: str = "discrete", **space: Any) -> Object:
    parameter_spec = {"name": parameter, "parameterType": type_, "feasibleSpace": space}
    return {"tunableParameters": [{"category": name, "parameters": [parameter_spec]}]}


SPACE = "spec.tunableParameters[0].parameters[0].feasibleSpace"


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"target": {}}, "spec.target", "either inference or modelVersion"),
        (
            {"target": {"inference": "a", "modelVersion": "b", "framework": "sklearn"}},
            "spec.target",
            "either inference or",
        ),
        ({"target": {"modelVersion": "b"}}, "spec.target", "a modelVersion needs a framework"),
        (
            {"target": {"modelVersion": "b", "framework": "sklearn", "predictor": "p"}},
            "spec.target",
            "predictor is allowed only",
        ),
        (
            {"target": {"inference": "a", "framework": "sklearn"}},
            "spec.target",
            "framework is allowed only with",
        ),
        (
            {"target": {"inference": "a", "resources": {"cpu": 1}}},
            "spec.target",
            "resources are allowed only with modelVersion",
        ),
        (
            {"target": {"inference": "a", "template": {}}},
            "spec.target",
            "template is allowed only with modelVersion",
        ),
        (
            {"target": {"modelVersion": "b", "framework": "custom"}},
            "spec.target",
            "needs a container named predictor",
        ),
        ({"tunableParameters": []}, "spec.tunableParameters", "0"),
        (
            {"tunableParameters": category("env")["tunableParameters"] * 2},
            "spec.tunableParameters[1]",
            "Duplicate value",
        ),
        (category("storage"), "spec.tunableParameters[0].category", "storage"),
        (
            category("resource", "gpucores", list=["1"]),
            "spec.tunableParameters[0]",
            "a resource is cpu, memory, gpu.memory or",
        ),
        (category("batching", "size", list=["1"]), "spec.tunableParameters[0]", "batchSize or timeout"),
        (category("env", "A"), SPACE, "give either list, or min and max with one of step and factor"),
        (category("env", "A", list=["1"], min="1"), SPACE, "give either list"),
        (category("env", "A", min="1", max="2"), SPACE, "give either list"),
        (category("env", "A", min="1", max="2", step="1", factor="2"), SPACE, "give either list"),
        (category("env", "A", min="1", max="2", factor="1"), SPACE, "factor must be greater than 1"),
        (category("env", "A", min="one", max="2", step="1"), f"{SPACE}.min", "one"),
        (
            category("env", "A", "categorical", min="1", max="2", step="1"),
            "spec.tunableParameters[0].parameters[0]",
            "categorical values are given as a list",
        ),
        ({"objective": {"objectiveMetricName": "speed"}}, "spec.objective.objectiveMetricName", "speed"),
        (
            {"objective": {"type": "minimize", "objectiveMetricName": "costAtRate"}},
            "spec.objective",
            "rate is required for costAtRate",
        ),
        (
            {"objective": {"objectiveMetricName": "throughput", "rate": 3}},
            "spec.objective",
            "not allowed otherwise",
        ),
        (
            {"objective": {"type": "minimize", "objectiveMetricName": "costAtRate", "rate": "0"}},
            "spec.objective",
            "rate must be greater than 0",
        ),
        (
            {"objective": {"objectiveMetricName": "latency"}},
            "spec.objective",
            "latency and cost are of type minimize",
        ),
        ({"constraints": [{"metric": "latency", "atMost": "100"}]}, "spec.constraints[0].atMost", "100"),
        (
            {"constraints": [{"metric": "latency", "atMost": "1%"}]},
            "spec.constraints[0]",
            "a latency at most a duration",
        ),
        (
            {"constraints": [{"metric": "errorRate", "atMost": "1s"}]},
            "spec.constraints[0]",
            "at most a percentage",
        ),
        (
            {"constraints": [{"metric": "ttft", "atMost": "0ms"}]},
            "spec.constraints[0]",
            "a latency cannot be at most 0",
        ),
        (
            {"constraints": [{"metric": "latency", "percentile": 100, "atMost": "1s"}]},
            "spec.constraints[0].percentile",
            "100",
        ),
        (
            {"load": {"requests": {"name": "a", "key": "b"}, "locustfile": {"name": "a", "key": "b"}}},
            "spec.load",
            "at most one of requestTemplate, requests, locustfile and chat",
        ),
        ({"load": {"levels": ["1", 0]}}, "spec.load", "every level must be greater than 0"),
        ({"load": {"maxLevel": "0"}}, "spec.load", "maxLevel must be greater than 0"),
        (
            {"load": {"levels": ["1", "500"], "maxLevel": "100"}},
            "spec.load",
            "no level may be greater than maxLevel",
        ),
        ({"prices": {"cpu": -1}}, "spec.prices", "cpu must not be negative"),
        ({"prices": {"gpuMemory": 0}}, "spec.prices", "gpuMemory must be above 0"),
        ({"prices": {"gpuMemory": "0e9"}}, "spec.prices", "gpuMemory must be above 0"),
        ({"prices": {"gpuMemory": "+0.0Gi"}}, "spec.prices", "gpuMemory must be above 0"),
        ({"maxCost": -1}, "spec", "maxCost must not be negative"),
        ({"maxNumTrials": 0}, "spec.maxNumTrials", "0"),
        ({"maxDuration": "soon"}, "spec.maxDuration", "soon"),
        ({"algorithm": {"algorithmName": "genetic"}}, "spec.algorithm.algorithmName", "genetic"),
    ],
)
async def test_invalid_experiment_is_refused_with_field_and_rule(
    kube: Kube, namespace: str, change: Object, field: str, value: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await kube.create(kinds.PROFILING_EXPERIMENT, experiment(namespace, **change))
    assert field in {cause.field for cause in caught.value.causes}
    assert value in str(caught.value)


@pytest.mark.parametrize("memory", [1, 80_000_000_000, "80Gi", "+0.5Ti", ".08e12"])
async def test_price_of_a_gpu_has_the_memory_of_a_whole_one_in_any_form(
    kube: Kube, namespace: str, memory: int | str
) -> None:
    created = await kube.create(
        kinds.PROFILING_EXPERIMENT, experiment(namespace, prices={"gpuMemory": memory})
    )
    assert created["spec"]["prices"]["gpuMemory"] == memory


async def test_experiment_is_immutable_except_for_its_budget(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.PROFILING_EXPERIMENT, experiment(namespace))

    async def patch(spec: Object) -> Object:
        return await kube.patch(kinds.PROFILING_EXPERIMENT, namespace, "digits", {"spec": spec})

    mutable = {
        "suspend": True,
        "maxNumTrials": 7,
        "maxDuration": "10m",
        "maxCost": "5",
        "parallelism": 2,
    }
    assert (await patch(mutable))["spec"].items() >= mutable.items()
    for name, value in {
        "target": {"inference": "other"},
        "tunableParameters": category("env", "A", list=["1"])["tunableParameters"],
        "objective": {"objectiveMetricName": "throughput"},
        "constraints": [{"metric": "latency", "atMost": "1s"}],
        "load": {"mode": "open"},
        "prices": {"cpu": "1"},
        "algorithm": {"algorithmName": "grid"},
        "serviceProgressDeadline": "5s",
        "warmStart": {"enabled": False},
    }.items():
        with pytest.raises(errors.Invalid, match=f"{name} cannot change: create another experiment"):
            await patch({name: value})


async def test_trial_and_profile_are_immutable(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.TRIAL, trial(namespace))
    template = trial(namespace)["spec"]["template"]
    unchanged = await kube.patch(kinds.TRIAL, namespace, "digits-1", {"spec": {"template": template}})
    assert unchanged["metadata"]["generation"] == 1
    template["spec"]["containers"][0]["env"][0]["value"] = "2"
    for change in ({"template": template}, {"seed": 1}, {"batch": 2}):
        with pytest.raises(errors.Invalid, match="a Trial is immutable"):
            await kube.patch(kinds.TRIAL, namespace, "digits-1", {"spec": change})
    await kube.create(kinds.CAPACITY_PROFILE, profile(namespace))
    with pytest.raises(errors.Invalid, match="a CapacityProfile is immutable"):
        await kube.patch(kinds.CAPACITY_PROFILE, namespace, "digits", {"spec": {"batch": 2}})


async def test_a_profile_has_no_status(kube: Kube, namespace: str) -> None:
    with pytest.raises(errors.ApiError, match="status") as refused:
        await kube.create(kinds.CAPACITY_PROFILE, profile(namespace) | {"status": {"phase": "x"}})
    assert refused.value.code in (400, 422)


async def test_defaults_of_an_experiment_are_stored(kube: Kube, namespace: str) -> None:
    spec = (await kube.create(kinds.PROFILING_EXPERIMENT, experiment(namespace)))["spec"]
    assert spec["objective"] == {
        "type": "maximize",
        "objectiveMetricName": "throughputPerCost",
        "percentile": 99,
    }
    assert (spec["maxNumTrials"], spec["parallelism"], spec["suspend"]) == (20, 1, False)
    assert spec["load"] == {"mode": "closed", "windowSeconds": 10, "warmupSeconds": 3}
