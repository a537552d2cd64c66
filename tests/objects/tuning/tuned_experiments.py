"""ProfilingExperiments and Trials in every phase."""

from typing import Any

from serving.objects import Object

SETTINGS = (
    ("resource", "cpu"),
    ("resource", "memory"),
    ("batching", "batchSize"),
    ("env", "OMP_NUM_THREADS"),
)
STARTED = "2026-01-01T00:00:00Z"


def settings(*values: str) -> list[Object]:
    return [
        {"category": category, "name": name, "value": value}
        for (category, name), value in zip(SETTINGS, values, strict=True)
    ]


def recommendation(*values: str, trial: str = "digits-3", **fields: Any) -> Object:
    numbers = {"objective": 18_300_000.0, "low": 17_900_000.0, "high": 18_800_000.0}
    money = {"costPerHour": 0.0225, "currentCostPerHour": 0.045}
    return {"trial": trial, "settings": settings(*values), **numbers, **money, "message": "", **fields}


def condition(status: str, reason: str, message: str) -> Object:
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": STARTED,
    }


def experiment_spec(**fields: Any) -> Object:
    feasible = {
        "cpu": ["500m", "1"],
        "memory": ["512Mi", "1Gi"],
        "batchSize": ["1", "16"],
        "OMP_NUM_THREADS": ["1", "2"],
    }
    parameters: dict[str, list[Object]] = {}
    for category, name in SETTINGS:
        parameters.setdefault(category, []).append({"name": name, "feasibleSpace": {"list": feasible[name]}})
    return {
        "target": {"inference": "digits", "predictor": "canary"},
        "tunableParameters": [{"category": c, "parameters": axes} for c, axes in parameters.items()],
        "objective": {"type": "maximize", "objectiveMetricName": "throughputPerCost"},
        "constraints": [
            {"metric": "latency", "percentile": 99, "atMost": "100ms"},
            {"metric": "errorRate", "atMost": "1%"},
        ],
        "prices": {"cpu": "0.04", "memory": "0.005"},
        "maxNumTrials": 20,
        "maxDuration": "30m",
        **fields,
    }


def experiment(
    name: str = "digits", *, namespace: str = "default", spec: Object | None = None, **status: Any
) -> Object:
    if "recommendation" in status:
        status.setdefault("expectedRegret", 0.005)
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ProfilingExperiment",
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": experiment_spec() if spec is None else spec,
        **({"status": {"observedGeneration": 1, "startTime": STARTED, **status}} if status else {}),
    }


def window(throughput: float, p99: float, **fields: Any) -> Object:
    return {
        "level": 8.0,
        "startTime": STARTED,
        "seconds": 5.0,
        "requests": 600,
        "errors": 0,
        "throughput": {"value": throughput, "low": 0.97 * throughput, "high": 1.03 * throughput},
        "latencies": [
            {"metric": "latency", "percentile": 50, "value": p99 / 2, "low": p99 / 3, "high": p99 / 2},
            {"metric": "latency", "percentile": 99, "value": p99, "low": 0.9 * p99, "high": 1.1 * p99},
        ],
        "errorRate": {"value": 0.0, "low": 0.0, "high": 0.006},
        "usage": {"cpuCores": 0.49, "memoryBytes": 190_000_000, "generatorCpu": 0.2},
        "steady": True,
        "meets": "Yes",
        **fields,
    }


def trial(
    number: int,
    *values: str,
    of: str = "digits",
    namespace: str = "default",
    purpose: str = "Explore",
    template: Object | None = None,
    **status: Any,
) -> Object:
    spec = {
        "experiment": of,
        "number": number,
        "purpose": purpose,
        "settings": settings(*values) if values else [],
        "template": template or {"spec": {}},
        "modelName": "digits",
        "modelVersion": "v1",
        "modelDigest": "sha256:" + "ab" * 32,
        "costPerHour": 0.0225,
    }
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Trial",
        "metadata": {
            "name": f"{of}-{number}",
            "namespace": namespace,
            "generation": 1,
            "creationTimestamp": STARTED,
            "labels": {"slipway.dev/experiment": of},
        },
        "spec": spec,
        **({"status": status} if status else {}),
    }


def measured(
    number: int, *values: str, throughput: float = 114.0, p99: float = 0.0841, **fields: Any
) -> Object:
    result = window(throughput, p99)
    status = {
        "phase": "Succeeded",
        "reason": "Measured",
        "windows": [result],
        "result": result,
        "seconds": 41.0,
        "completionTime": "2026-01-01T00:02:30Z",
    }
    return trial(number, *values, **fields, **status)
