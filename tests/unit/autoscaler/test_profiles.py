"""Capacity by a CapacityProfile of the same model and resources."""

import pytest

from autoscaler import profiles
from autoscaler.observation import Capacity
from serving.objects import Object
from serving.resources import names


class Listed:
    """Profiles of one model."""

    def __init__(self, *specs: Object) -> None:
        self._found = [{"spec": spec} for spec in specs]

    def by_index(self, name: str, value: str) -> list[Object]:
        assert name == profiles.DIGEST
        return [profile for profile in self._found if profile["spec"]["modelDigest"] == value]


def spec(rate: float = 20, *, cpu: str = "1", at: str = "2026-01-01T00:00:00Z", digest: str = "m") -> Object:
    latency = {"metric": "latency", "percentile": 50, "value": 0.25, "low": 0.2, "high": 0.3}
    return {
        "modelDigest": digest,
        "capacity": rate,
        "measuredAt": at,
        "settings": [{"category": "resource", "name": "cpu", "value": cpu}],
        "points": [{"level": rate, "throughput": rate, "latencies": [latency]}],
    }


def deployment(cpu: str = "1") -> Object:
    container = {
        "name": "predictor",
        "env": [{"name": names.MODEL_DIGEST_ENV, "value": "m"}],
        "resources": {"limits": {"cpu": cpu}},
    }
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ((), None),
        ((spec(),), Capacity(20, 5)),
        ((spec(cpu="1000m"),), Capacity(20, 5)),
        ((spec(cpu="2"),), None),
        ((spec(digest="other"),), None),
        ((spec(0),), None),
        ((spec(20), spec(40, at="2026-02-01T00:00:00Z")), Capacity(40, 10)),
    ],
    ids=["none", "same", "same-in-other-words", "more-cores", "another-model", "no-capacity", "the-newest"],
)
def test_capacity_is_that_of_the_newest_matching_profile(
    stored: tuple[Object, ...], expected: Capacity | None
) -> None:
    assert profiles.capacity(Listed(*stored), deployment()) == expected


def test_target_without_a_model_has_no_capacity() -> None:
    assert (
        profiles.capacity(Listed(spec()), {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
        is None
    )
