"""A ProfilingExperiment and its Trials, measured on a synthetic service, for tests of reports."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serving.objects import Object
from serving.resources.tuning.experiment import ProfilingExperimentSpec, Setting
from tuner.objective import objective_value
from tuner.specs.space import Space

Settings = Mapping[str, str]
ServiceModel = Callable[[Settings, float], tuple[float, float]]
"""Settings and users → requests per second, and seconds of p99 latency."""

CPU, MEMORY = 0.04, 0.005
AXES: list[Object] = [
    {
        "category": "resource",
        "parameters": [
            {"name": "cpu", "feasibleSpace": {"list": ["500m", "1", "2", "4"]}},
            {"name": "memory", "feasibleSpace": {"min": "256Mi", "max": "2Gi", "factor": "2"}},
        ],
    },
    {
        "category": "batching",
        "parameters": [{"name": "batchSize", "feasibleSpace": {"list": ["1", "2", "4", "8", "16"]}}],
    },
    {
        "category": "env",
        "parameters": [
            {"name": "OMP_NUM_THREADS", "parameterType": "int", "feasibleSpace": {"list": ["1", "2", "4"]}}
        ],
    },
]
CORES = {"500m": 0.5, "1": 1.0, "2": 2.0, "4": 4.0}
GIB = {"256Mi": 0.25, "512Mi": 0.5, "1Gi": 1.0, "2Gi": 2.0}


def service(settings: Settings, users: float) -> tuple[float, float]:
    """Return throughput and latency of a server that saturates.

    Larger batches cost latency, and more threads than cores cost throughput.
    """
    cores, batch = CORES[settings["cpu"]], int(settings["batchSize"])
    threads = int(settings["OMP_NUM_THREADS"])
    parallel = min(threads, cores) ** 0.85 / (1 + 0.25 * max(0.0, threads - cores))
    capacity = 90 * parallel * batch**0.4
    base = 0.011 * batch**0.55 / parallel**0.6
    throughput = capacity * (1 - math.exp(-users / (capacity * base * 1.2)))
    return throughput, base * (1 + 1.6 * users / (capacity * base)) * 1.25


def memory_needed(settings: Settings) -> float:
    """Return the memory that a spec needs, in GiB."""
    return 0.2 + 0.03 * int(settings["batchSize"])


def window(
    measured: tuple[float, float], users: float, bound: float, *, noise: float = 0.02, wobble: float = 1.0
) -> Object:
    """Return one window, with intervals around the measured values."""
    throughput, latency = measured[0] * wobble, measured[1] / wobble
    low, high = latency * (1 - 2 * noise), latency * (1 + 2 * noise)
    return {
        "level": users,
        "startTime": "2026-11-22T04:00:00Z",
        "seconds": 10.0,
        "requests": int(throughput * 10),
        "errors": 0,
        "throughput": {
            "value": throughput,
            "low": throughput * (1 - noise),
            "high": throughput * (1 + noise),
        },
        "latencies": [
            {"metric": "latency", "percentile": 50, "value": latency / 2, "low": low / 2, "high": high / 2},
            {"metric": "latency", "percentile": 99, "value": latency, "low": low, "high": high},
        ],
        "errorRate": {"value": 0.0, "low": 0.0, "high": 0.001},
        "usage": {"cpuCores": 0.8, "memoryBytes": 300_000_000, "generatorCpu": 0.3},
        "meets": "Yes" if high <= bound else "No" if low > bound else "Unsure",
    }


def trial(
    number: int,
    settings: Settings,
    *,
    bound: float = 0.1,
    purpose: str = "Explore",
    run: ServiceModel = service,
    wobble: float = 1.0,
) -> Object:
    """Return a finished Trial: measured at 1, 2, 4, ... users until the bound is broken, or out of memory."""
    cost = CORES[settings["cpu"]] * CPU + GIB[settings["memory"]] * MEMORY
    limits = {"cpu": settings["cpu"], "memory": settings["memory"]}
    categories = {"cpu": "resource", "memory": "resource", "batchSize": "batching", "OMP_NUM_THREADS": "env"}
    body: Object = {
        "metadata": {"name": f"digits-cost-{number}", "namespace": "default"},
        "spec": {
            "experiment": "digits-cost",
            "number": number,
            "purpose": purpose,
            "settings": [{"category": categories[k], "name": k, "value": v} for k, v in settings.items()],
            "template": {"spec": {"containers": [{"name": "predictor", "resources": {"limits": limits}}]}},
            "modelName": "digits",
            "costPerHour": cost,
        },
    }
    return {**body, "status": _status(settings, bound, run, wobble)}


def _status(settings: Settings, bound: float, run: ServiceModel, wobble: float) -> Object:
    common = {"machine": "AMD EPYC, 2 cores", "startSeconds": 2.5}
    if GIB[settings["memory"]] < memory_needed(settings):
        message = "killed at its memory limit while it was warmed up"
        return {**common, "phase": "Failed", "reason": "OutOfMemory", "message": message, "seconds": 9.0}
    windows = []
    for users in (1, 2, 4, 8, 16, 32, 64):
        windows.append(window(run(settings, users), users, bound, wobble=wobble))
        if windows[-1]["meets"] == "No":
            break
    allowed = [measured for measured in windows if measured["meets"] == "Yes"]
    reason = "Measured" if allowed else "BreaksConstraint"
    return {
        **common,
        "phase": "Succeeded",
        "reason": reason,
        "windows": windows,
        "result": allowed[-1] if allowed else windows[0],
        "seconds": 14.0 * len(windows),
        "notes": ["GeneratorLimited"] if windows[-1]["throughput"]["value"] > 500 else [],
    }


def experiment(status: Object | None = None, **changed: Any) -> Object:
    """Return the ProfilingExperiment of the synthetic service."""
    spec: Object = {
        "target": {"inference": "digits"},
        "tunableParameters": AXES,
        "constraints": [{"metric": "latency", "percentile": 99, "atMost": "100ms"}],
        "prices": {"cpu": str(CPU), "memory": str(MEMORY)},
        **changed,
    }
    return {
        "metadata": {"name": "digits-cost", "namespace": "default", "uid": "u"},
        "spec": spec,
        "status": status or {},
    }


def finished(trials: Sequence[Object], winner: Object | None, **changed: Any) -> Object:
    """Return the experiment with its final status; without a winner it has failed."""
    spec = ProfilingExperimentSpec.model_validate(experiment(**changed)["spec"])
    phases = [item["status"]["phase"] for item in trials]
    status: Object = {
        "phase": "Succeeded" if winner else "Failed",
        "specs": Space.of(spec).size,
        "trials": {
            "total": len(trials),
            "succeeded": phases.count("Succeeded"),
            "failed": phases.count("Failed"),
        },
        "expectedRegret": 0.012,
        "spentSeconds": sum(item["status"]["seconds"] for item in trials),
        "spentCost": 0.021,
        "startTime": "2026-11-22T04:00:00Z",
        "completionTime": "2026-11-22T04:25:00Z",
    }
    if winner is not None:
        from serving.resources.tuning.trial import Window

        result = Window.model_validate(winner["status"]["result"])
        value = objective_value(spec.objective, result, winner["spec"]["costPerHour"], 1)
        assert value is not None
        status["recommendation"] = {
            "trial": winner["metadata"]["name"],
            "settings": winner["spec"]["settings"],
            "objective": value.value,
            "low": value.low,
            "high": value.high,
            "costPerHour": winner["spec"]["costPerHour"],
        }
    return experiment(status, **changed)


def settings_of(settings: Sequence[Setting]) -> dict[str, str]:
    """Return the values of settings by name."""
    return {setting.name: setting.value for setting in settings}


def story(seed: int = 3, count: int = 22, bound: float = 0.1) -> tuple[Object, list[Object]]:
    """Return a finished experiment: today's spec, random specs, and the two best of them confirmed."""
    import random

    spec = ProfilingExperimentSpec.model_validate(experiment()["spec"])
    space = Space.of(spec)
    draw = random.Random(seed)
    rows = draw.sample(range(space.size), count)
    today = {"cpu": "4", "memory": "2Gi", "batchSize": "1", "OMP_NUM_THREADS": "4"}
    trials = [trial(1, today, purpose="Baseline", bound=bound)]
    for row in rows:
        wobble = draw.gauss(1, 0.012)
        trials.append(trial(len(trials) + 1, settings_of(space.settings(row)), wobble=wobble, bound=bound))
    ranked = sorted(
        (candidate for candidate in trials if candidate["status"]["reason"] == "Measured"),
        key=lambda candidate: (
            candidate["status"]["result"]["throughput"]["value"] / candidate["spec"]["costPerHour"]
        ),
    )
    for best in ranked[:-3:-1]:
        winning_settings = {s["name"]: s["value"] for s in best["spec"]["settings"]}
        trials.append(
            trial(
                len(trials) + 1, winning_settings, purpose="Confirm", wobble=draw.gauss(1, 0.012), bound=bound
            )
        )
    winner = trials[-2] if ranked else None
    atmost = f"{bound * 1000:.0f}ms"
    changed = {"constraints": [{"metric": "latency", "percentile": 99, "atMost": atmost}]}
    return finished(trials, winner, **changed), trials
