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


def tokens_of(rate: float, *points: Object) -> float | None:
    measured = profiles.capacity(Listed(spec(rate) | {"points": list(points)}), deployment())
    assert measured is not None
    return measured.tokens


def point(throughput: float, **tokens: float) -> Object:
    return {"level": throughput, "throughput": throughput, **tokens}


def test_tokens_of_a_replica_are_those_of_the_nearest_point_at_its_capacity() -> None:
    near = point(16, tokensPerSecond=1600, promptTokensPerSecond=4800)
    assert tokens_of(20, point(8, tokensPerSecond=1, promptTokensPerSecond=1), near) == 8000


@pytest.mark.parametrize(
    "measured",
    [
        point(20, tokensPerSecond=2000),
        point(20, tokensPerSecond=2000, promptTokensPerSecond=0),
        point(0, tokensPerSecond=0, promptTokensPerSecond=1),
    ],
    ids=["older", "no-usage", "no-answers"],
)
def test_tokens_of_a_replica_are_unknown_without_those_of_prompts(measured: Object) -> None:
    assert tokens_of(20, measured) is None


def test_target_without_a_model_has_no_capacity() -> None:
    assert (
        profiles.capacity(Listed(spec()), {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
        is None
    )
