"""Capacity by a CapacityProfile of the same model and resources."""

import math

import pytest

from autoscaler import profiles
from autoscaler.observation import Capacity
from serving.objects import Object
from serving.resources import names


class Listed:
    """Profiles in one namespace."""

    def __init__(self, *specs: Object, namespace: str = "team") -> None:
        self._stored = [{"metadata": {"namespace": namespace}, "spec": spec} for spec in specs]

    def by_index(self, name: str, value: str) -> list[Object]:
        assert name == profiles.MODEL
        return [profile for profile in self._stored if value in profiles.model_of(profile)]


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
    return {
        "metadata": {"namespace": "team"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


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


def test_profile_of_another_namespace_is_not_used() -> None:
    stored = Listed(spec(1e9, at="9999-01-01T00:00:00Z"), namespace="staging")
    assert profiles.capacity(stored, deployment()) is None


@pytest.mark.parametrize("rate", [1e-300, 1e13, 1e300, math.inf, math.nan])
def test_profile_with_a_capacity_that_no_replica_can_have_is_not_used(rate: float) -> None:
    assert profiles.capacity(Listed(spec(rate)), deployment()) is None


def test_profile_with_a_latency_that_no_replica_can_have_is_not_used() -> None:
    slow = {"metric": "latency", "percentile": 50, "value": 1e300, "low": 1e300, "high": 1e300}
    points = [{"level": 20, "throughput": 20, "latencies": [slow]}]
    assert profiles.capacity(Listed(spec() | {"points": points}), deployment()) is None


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
