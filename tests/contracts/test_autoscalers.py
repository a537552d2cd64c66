"""The rules of an Autoscaler's spec: both servers refuse each violation with its field and message."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from serving import errors
from serving.kube import Kube
from serving.planning.inference import children
from serving.planning.inference.arms import Arm
from serving.planning.inference.comparison.drift import covers
from serving.resources import kinds
from serving.resources.inference import Predictor
from tests.objects.contract_objects import gone, inference

ROOT = Path(__file__).parents[2]
EVERYTHING: dict[str, Any] = {
    "minReplicas": 0,
    "maxReplicas": 10,
    "schedules": [
        {
            "name": "office",
            "start": "0 8 * * mon-fri",
            "end": "0 18 * * mon-fri",
            "timeZone": "Europe/Berlin",
            "minReplicas": 2,
        },
        {"name": "sale", "start": "*/30 9-17/2 24,25 11 *", "duration": "1.5h", "maxReplicas": 50},
    ],
    "metrics": [
        {"type": "QPS", "target": 50},
        {"type": "QPS", "name": "burst"},
        {"type": "Concurrency", "target": "0.5"},
        {"type": "Latency", "percentile": 95, "target": "250ms"},
        {"type": "TokenQueueDepth", "target": 4000},
        {"type": "TokensPerSecond"},
        {"type": "Utilization", "resource": "gpu", "target": 80},
        {
            "type": "PromQL",
            "name": "jobs",
            "query": "sum(queue)",
            "target": 5,
            "serverAddress": "http://prometheus:9090",
        },
    ],
    "behavior": {
        "scaleUp": {"maxReplicasPerMinute": 10, "maxPercentPerMinute": 100},
        "scaleDown": {"stabilizationSeconds": 300},
        "scaleToZero": {"idleSeconds": 600, "prewarm": False},
    },
    "prediction": {"mode": "Observe", "timeZone": "Europe/Berlin"},
    "risk": 0.25,
}
SCHEDULE = {"name": "s", "start": "0 8 * * *", "end": "0 9 * * *", "minReplicas": 1}


def autoscaler(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": kinds.AUTOSCALER.api_version,
        "kind": "Autoscaler",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"scaleTargetRef": {"name": "d"}, **spec},
    }


def schedule(**changes: Any) -> dict[str, Any]:
    """Return a spec with one schedule; None removes a field of it."""
    fields = {key: value for key, value in {**SCHEDULE, **changes}.items() if value is not None}
    return {"maxReplicas": 5, "schedules": [fields]}


def metric(type_: str, **fields: Any) -> dict[str, Any]:
    return {"metrics": [{"type": type_, **fields}]}


async def test_two_bounds_are_a_complete_configuration(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.AUTOSCALER, autoscaler(namespace, minReplicas=0, maxReplicas=10))
    assert created["spec"] == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "managed": True,
        "minReplicas": 0,
        "maxReplicas": 10,
        "prediction": {"mode": "Enabled"},
    }


async def test_autoscaler_of_a_predictor_is_stored_unchanged(kube: Kube, namespace: str) -> None:
    """The planner compares both: a field that the server adds or changes would be rewritten forever."""
    predictor = {"name": "p", "modelVersion": "v", "autoScale": {**EVERYTHING, "standby": 1}}
    parent = await kube.create(kinds.INFERENCE, inference(namespace, predictors=[predictor]))
    arm = Arm(Predictor.model_validate(parent["spec"]["predictors"][0]), None, "d-p-1")
    planned = children.autoscaler(parent, arm, "d-p-1").object
    body = {"apiVersion": kinds.AUTOSCALER.api_version, "kind": "Autoscaler", **planned}
    stored = await kube.apply(kinds.AUTOSCALER, body)
    assert stored["spec"] == planned["spec"]
    assert stored["spec"].keys() == {"scaleTargetRef", "managed", *EVERYTHING}


async def test_metrics_merge_by_type_and_name(kube: Kube, namespace: str) -> None:
    body = autoscaler(namespace, metrics=[{"type": "QPS", "target": 5}, {"type": "Concurrency", "target": 2}])
    await kube.apply(kinds.AUTOSCALER, body)
    body["spec"]["metrics"] = [{"type": "QPS", "target": 7}]
    stored = await kube.apply(kinds.AUTOSCALER, body)
    assert stored["spec"]["metrics"] == [{"type": "QPS", "name": "", "target": 7}]


async def test_scale_subresource_has_the_count_of_another_autoscaler(kube: Kube, namespace: str) -> None:
    """Without our minimum and maximum, which are not the other's: two are allowed at a maximum of one."""
    unmanaged = autoscaler(namespace, managed=False, replicas=2, minReplicas=2)
    created = await kube.create(kinds.AUTOSCALER, unmanaged)
    status = {"desiredReplicas": 2, "currentReplicas": 1, "readyReplicas": 0, "selector": "app=d,tier=x"}
    await kube.apply_status(kinds.AUTOSCALER, created, status)
    scale = orjson.loads(await kube.raw(kinds.AUTOSCALER.path(namespace, "a", "scale")))
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 1, "selector": "app=d,tier=x"},
    )
    patched = await kube.patch(
        kinds.AUTOSCALER, namespace, "a", {"spec": {"replicas": 5}}, subresource="scale"
    )
    assert patched["spec"]["replicas"] == 5
    stored = await kube.get(kinds.AUTOSCALER, namespace, "a")
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)
    assert covers(stored["status"], status)
    with pytest.raises(errors.Invalid, match="1000"):
        await kube.patch(kinds.AUTOSCALER, namespace, "a", {"spec": {"replicas": 1001}}, subresource="scale")


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"minReplicas": 2}, "spec", "minReplicas must not be greater than maxReplicas"),
        ({"maxReplicas": 0}, "spec.maxReplicas", "1"),
        ({"risk": 0}, "spec.risk", "0.001"),
        ({"risk": 51}, "spec.risk", "50"),
        ({"prediction": {"mode": "Auto"}}, "spec.prediction.mode", "Auto"),
        (
            {"prediction": {"timeZone": "Mars/Base"}},
            "spec.prediction",
            "timeZone must be in the IANA database",
        ),
        ({"prediction": {"timeZone": "../UTC"}}, "spec.prediction.timeZone", "../UTC"),
        ({"behavior": {"scaleToZero": {"idleSeconds": 0}}}, "spec.behavior.scaleToZero.idleSeconds", "0"),
        (
            {"behavior": {"scaleUp": {"maxPercentPerMinute": 0}}},
            "spec.behavior.scaleUp.maxPercentPerMinute",
            "0",
        ),
        ({"scaleTargetRef": {"name": "A_b"}}, "spec.scaleTargetRef.name", "A_b"),
        (schedule(duration="1h"), "spec.schedules[0]", "give one of end and duration"),
        (schedule(end=None), "spec.schedules[0]", "give one of end and duration"),
        (schedule(end=None, duration="0s"), "spec.schedules[0]", "duration must be above 0"),
        (schedule(start="0 8 * *"), "spec.schedules[0]", "start must have five fields"),
        (schedule(end="@daily"), "spec.schedules[0]", "end must have five fields"),
        (schedule(end="0 8 * * *"), "spec.schedules[0]", "end must not be the same as start"),
        (schedule(minReplicas=None), "spec.schedules[0]", "needs minReplicas, maxReplicas or both"),
        (schedule(timeZone="Europe/Nowhere"), "spec.schedules[0]", "timeZone must be in the IANA database"),
        (schedule(timeZone="+02:00"), "spec.schedules[0].timeZone", "+02:00"),
        (schedule(minReplicas=6), "spec", "in a schedule minReplicas must not be greater than maxReplicas"),
        ({"schedules": [SCHEDULE, SCHEDULE]}, "spec.schedules[1]", "Duplicate value"),
        (metric("RPS", target=1), "spec.metrics[0].type", "RPS"),
        (metric("TokenQueueDepth"), "spec.metrics[0]", "target is required"),
        (metric("Latency"), "spec.metrics[0]", "the target of Latency is required"),
        (metric("Latency", target=250), "spec.metrics[0]", "a duration above 0"),
        (metric("Latency", target="0ms"), "spec.metrics[0]", "a duration above 0"),
        (metric("QPS", target="5s"), "spec.metrics[0]", "target must be a number above 0"),
        (metric("QPS", target=0), "spec.metrics[0]", "target must be a number above 0"),
        (metric("QPS", target=-1), "spec.metrics[0]", "target must be a number above 0"),
        (metric("QPS", target="many"), "spec.metrics[0].target", "many"),
        (metric("QPS", percentile=99), "spec.metrics[0]", "only Latency has a percentile"),
        (metric("Utilization", target=70), "spec.metrics[0]", "is required for Utilization"),
        (metric("QPS", resource="cpu"), "spec.metrics[0]", "not allowed otherwise"),
        (metric("Utilization", resource="cpu", target=101), "spec.metrics[0]", "at most 100"),
        (metric("PromQL", target=1), "spec.metrics[0]", "query is required for PromQL"),
        (metric("QPS", query="up"), "spec.metrics[0]", "not allowed otherwise"),
        (metric("QPS", serverAddress="http://p"), "spec.metrics[0]", "only PromQL has a serverAddress"),
        (
            metric("PromQL", query="up", target=1, serverAddress="p:9090"),
            "spec.metrics[0].serverAddress",
            "p:9090",
        ),
        ({"metrics": [{"type": "QPS"}, {"type": "QPS"}]}, "spec.metrics[1]", "Duplicate value"),
    ],
)
async def test_invalid_autoscaler_is_refused_with_its_field_and_not_stored(
    kube: Kube, namespace: str, spec: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await kube.create(kinds.AUTOSCALER, autoscaler(namespace, **spec))
    assert field in {cause.field for cause in caught.value.causes}
    assert words in str(caught.value)
    assert await gone(kube, kinds.AUTOSCALER, namespace, "a")


async def test_a_predictor_is_refused_by_the_same_rules(kube: Kube, namespace: str) -> None:
    predictor = {"name": "p", "modelVersion": "v", "autoScale": metric("Latency", target=250)}
    with pytest.raises(errors.Invalid, match="the target of Latency") as caught:
        await kube.create(kinds.INFERENCE, inference(namespace, predictors=[predictor]))
    assert "spec.predictors[0].autoScale.metrics[0]" in {cause.field for cause in caught.value.causes}


BOTH = ["stable", "canary"]


@pytest.mark.parametrize(
    ("sample", "arms"), [("autoscale", BOTH), ("on-demand", BOTH), ("inference", BOTH), ("elastic", ["only"])]
)
async def test_sample_manifests_are_accepted(
    kube: Kube, namespace: str, sample: str, arms: list[str]
) -> None:
    body = yaml.safe_load((ROOT / "manifests" / "samples" / f"{sample}.yaml").read_text())
    body["metadata"]["namespace"] = namespace
    created = await kube.create(kinds.INFERENCE, body)
    assert [predictor["name"] for predictor in created["spec"]["predictors"]] == arms


async def test_full_status_is_stored_beside_the_demand_of_activators(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.AUTOSCALER, autoscaler(namespace))
    stored = "2026-01-01T00:00:00Z"
    full_status = {
        "desiredReplicas": 3,
        "currentReplicas": 1,
        "readyReplicas": 1,
        "reason": "a sentence",
        "lastScaleTime": stored,
        "decision": {
            "time": stored,
            "rule": "Forecast",
            "metric": "QPS",
            "needed": 3,
            "rate": 120.5,
            "capacity": 50,
            "backlog": 0,
            "startupSeconds": 30.5,
            "schedule": "office",
            "forecast": {"horizonSeconds": 45, "lower": 100, "median": 120, "upper": 140.25},
        },
        "decisions": [
            {"time": stored, "fromReplicas": 1, "toReplicas": 3, "reason": "Forecast", "message": "m"}
        ],
        "metrics": [
            {"name": "QPS", "value": 120.5, "needed": 3, "message": ""},
            {"name": "PromQL/jobs", "needed": 0, "message": "not measured"},
        ],
        "learned": {
            "capacity": {"rate": 50, "concurrency": 4, "source": "Learned"},
            "startupSeconds": 30.5,
            "keepAliveSeconds": 400,
        },
        "signals": [{"source": "gateway-a", "healthy": False, "message": "silent"}],
        "observedGeneration": 1,
    }
    await kube.apply_status(kinds.AUTOSCALER, created, full_status)
    demand = [{"reporter": "activator-a", "inFlight": 2}]
    updated = await kube.apply_status(kinds.AUTOSCALER, created, {"demand": demand}, manager="another")
    assert covers(updated["status"], full_status | {"demand": demand})
