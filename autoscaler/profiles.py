"""The capacity of one replica by a CapacityProfile of the same namespace, model and resources. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from autoscaler.observation import MOST_WORK, Capacity
from serving.objects import Object
from serving.resources import names
from serving.resources.formats import quantity

MODEL = "model"
"""Name of the index of profiles by `model_of`."""
_SAME = 0.05
"""Share by which the numbers of a setting may differ: an amount of a resource, or a number in a variable."""


class Profiles(Protocol):
    """An informer's CapacityProfiles, by index."""

    def by_index(self, name: str, value: str) -> list[Object]:
        """Return the profiles whose value in the index `name` is `value`."""


def model_of(profile: Mapping[str, Any]) -> Iterable[str]:
    """Return a profile's values in the index `MODEL`: its namespace, and the digest of its model's image.

    Who may write to another namespace only must not size this one.
    """
    return [_model(profile, profile["spec"].get("modelDigest", ""))]


def _model(obj: Mapping[str, Any], digest: str) -> str:
    """Return the value in the index `MODEL` of a model in the namespace of `obj`."""
    return f"{obj['metadata']['namespace']}/{digest}"


def capacity(profiles: Profiles, deployment: Mapping[str, Any]) -> Capacity | None:
    """Return the measured capacity of one replica of a Deployment; None without a matching profile."""
    containers = (((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}).get("containers")
    for container in containers or ():
        digest = _env(container).get(names.MODEL_DIGEST_ENV)
        if digest:
            of_model = profiles.by_index(MODEL, _model(deployment, digest))
            measured = [p["spec"] for p in of_model if _fits(p["spec"], container)]
            newest = max(measured, key=lambda spec: str(spec.get("measuredAt", "")), default=None)
            return _measured(newest) if newest is not None else None
    return None


def _measured(spec: Mapping[str, Any]) -> Capacity | None:
    """Return the capacity by a profile's spec; None if no measured load met the constraints, or if no replica
    can have this capacity.

    The latency is the median at the measured point nearest to the capacity, and a request has as many tokens
    as there.
    """
    rate = float(spec.get("capacity") or 0)
    if not 1 / MOST_WORK <= rate <= MOST_WORK:
        return None
    nearest = min(spec["points"], key=lambda point: abs(float(point["throughput"]) - rate))
    medians = [  # seconds
        float(latency["value"])
        for latency in nearest.get("latencies") or []
        if latency["metric"] == "latency" and latency["percentile"] == 50
    ]
    # Concurrency by Little's law; without measured latencies it is the least, one request at a time.
    concurrency = max(rate * medians[0], 1.0) if medians else 1.0
    return Capacity(rate, concurrency, _tokens(nearest, rate)) if concurrency <= MOST_WORK else None


def _tokens(point: Mapping[str, Any], rate: float) -> float | None:
    """Return the prompt and generated tokens per second at `rate` requests per second, with the tokens of a
    request at a measured point; None without those of prompts, which generated tokens do not show.
    """
    prompt, answered = float(point.get("promptTokensPerSecond") or 0), float(point["throughput"])
    if prompt <= 0 or answered <= 0:
        return None
    return (prompt + float(point.get("tokensPerSecond") or 0)) * rate / answered


def _fits(spec: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    """Whether the settings of a profile agree with the limits and the environment of this container.

    Settings that the container does not have are not compared.
    """
    configured = {
        **((container.get("resources") or {}).get("limits") or {}),
        **_env(container),
    }
    for setting in spec.get("settings") or ():
        value = configured.get(setting["name"])
        if value is not None and not _alike(str(value), str(setting["value"])):
            return False
    return True


def _alike(configured: str, measured: str) -> bool:
    if configured == measured:
        return True
    try:
        first, second = float(quantity.parse(configured)), float(quantity.parse(measured))
    except ValueError:
        return False
    return abs(first - second) <= _SAME * max(abs(first), abs(second))


def _env(container: Mapping[str, Any]) -> dict[str, str]:
    return {variable["name"]: str(variable.get("value", "")) for variable in container.get("env") or []}
