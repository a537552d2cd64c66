"""What one replica can take by a CapacityProfile of the same model and resources. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from autoscaler.observation import Capacity
from serving.resources import names, quantity

Object = dict[str, Any]

DIGEST = "digest"
"""Name of the index of profiles by their models' digest."""
_SAME = 0.05
"""Share by which an amount of a resource may differ."""


class Profiles(Protocol):
    """CapacityProfiles, by index."""

    def by_index(self, name: str, value: str) -> list[Object]:
        """Return those of a model."""


def digest_of(profile: Mapping[str, Any]) -> Iterable[str]:
    """Index function."""
    return [profile["spec"].get("modelDigest", "")]


def capacity(profiles: Profiles, deployment: Mapping[str, Any]) -> Capacity | None:
    """Return what one replica of a Deployment can take; None where nobody has measured it."""
    containers = (((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}).get("containers")
    for container in containers or ():
        digest = _env(container).get(names.MODEL_DIGEST_ENV)
        if digest:
            measured = [p["spec"] for p in profiles.by_index(DIGEST, digest) if _fits(p["spec"], container)]
            newest = max(measured, key=lambda spec: str(spec.get("measuredAt", "")), default=None)
            return _measured(newest) if newest is not None else None
    return None


def _measured(spec: Mapping[str, Any]) -> Capacity | None:
    rate = float(spec.get("capacity") or 0)
    if rate <= 0:
        return None
    nearest = min(spec["points"], key=lambda point: abs(float(point["throughput"]) - rate))
    medians = [
        float(found["value"])
        for found in nearest.get("latencies") or []
        if found["metric"] == "latency" and found["percentile"] == 50
    ]
    # By Little's law; a measurement without latencies says nothing of it, and one request at a time is the least.
    return Capacity(rate, max(rate * medians[0], 1.0) if medians else 1.0)


def _fits(spec: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    """Whether a profile was measured with the resources and the batching of this container, as far as it says."""
    given = {
        **((container.get("resources") or {}).get("limits") or {}),
        **_env(container),
    }
    for setting in spec.get("settings") or ():
        have = given.get(setting["name"])
        if have is not None and not _alike(str(have), str(setting["value"])):
            return False
    return True


def _alike(have: str, measured: str) -> bool:
    if have == measured:
        return True
    try:
        first, second = float(quantity.parse(have)), float(quantity.parse(measured))
    except ValueError:
        return False
    return abs(first - second) <= _SAME * max(abs(first), abs(second))


def _env(container: Mapping[str, Any]) -> dict[str, str]:
    return {found["name"]: str(found.get("value", "")) for found in container.get("env") or []}
