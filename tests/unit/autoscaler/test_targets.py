"""Targets without a watch, and other scalers of targets."""

import asyncio
from collections.abc import Mapping

import pytest

from autoscaler import targets
from autoscaler.starts import Starts
from serving import clock, errors
from serving.kube import Key
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment


async def test_target_is_read_again_when_no_autoscaler_had_named_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "READ_SECONDS", 1e9)
    api = FakeKube()
    for name in ("kept", "gone"):
        api.add(kinds.DEPLOYMENT, deployment(name, 1))
    reader, kept, gone = targets.Targets(api.client("test")), Key("default", "kept"), Key("default", "gone")
    first = [await reader.read(kinds.DEPLOYMENT, key, Starts()) for key in (kept, gone)]
    reader.retain({kept})
    again = [await reader.read(kinds.DEPLOYMENT, key, Starts()) for key in (kept, gone)]
    assert again[0] is first[0]
    assert again[1] is not first[1]


def test_selector_is_as_narrow_as_the_deployments_when_it_has_expressions() -> None:
    target = deployment("d")
    target["spec"]["selector"] = {
        "matchLabels": {"app": "d"},
        "matchExpressions": [{"key": "track", "operator": "NotIn", "values": ["canary"]}],
    }
    read = targets.ScaleTarget(kinds.DEPLOYMENT, target, [], is_ours=False)
    assert read.selector == "app=d,track notin (canary)"


def replica(name: str, revision: str, **metadata: str) -> Object:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": revision}, **metadata},
        "status": ready,
    }


async def test_pods_that_terminate_are_not_ready_when_another_kind_was_scaled_down() -> None:
    scale = {"metadata": {"name": "s"}, "spec": {"replicas": 1}, "status": {"replicas": 2}}
    pods = [replica("a", "s"), replica("b", "s", deletionTimestamp="2026-01-01T00:00:00Z")]
    assert targets._as_deployment(scale, "app=s", pods)["status"] == {"replicas": 2, "readyReplicas": 1}


class Scaled(FakeKube):
    """An API with a HorizontalPodAutoscaler of each of two targets, whose list waits or fails."""

    def __init__(self) -> None:
        super().__init__()
        scalers = [
            {
                "metadata": {"name": f"of-{name}", "namespace": "default"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}},
            }
            for name in ("a", "b")
        ]
        self.documents[targets.SCALERS.path(None)] = {"items": scalers}
        self.answers = asyncio.Event()
        self.answers.set()
        self.failure: Exception | None = None
        self.lists = 0

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        self.lists += 1
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        return await super().raw(path, query)


async def scaler(reader: targets.Targets, name: str) -> str:
    return await reader.other_scaler(Key("default", name), kinds.DEPLOYMENT)


async def test_scaler_of_each_target_is_known_when_several_ask_during_the_first_list() -> None:
    api = Scaled()
    reader = targets.Targets(api)
    api.answers.clear()
    asked = [asyncio.create_task(scaler(reader, name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    api.answers.set()
    assert await asyncio.gather(*asked) == ["of-a", "of-b"]
    assert api.lists == 1


@pytest.mark.parametrize("error", [errors.Internal(500, "", "down"), errors.Unavailable("down")])
async def test_scalers_are_listed_again_when_the_first_list_has_failed(error: Exception) -> None:
    api = Scaled()
    reader = targets.Targets(api)
    api.failure = error
    with pytest.raises(type(error)):
        await scaler(reader, "a")
    api.failure = None
    assert await scaler(reader, "a") == "of-a"


@pytest.mark.parametrize("error", [errors.Internal(500, "", "down"), errors.Unavailable("down")])
async def test_last_scalers_are_used_when_a_later_list_fails_or_waits(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Scaled()
    reader, now = targets.Targets(api), 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    assert await scaler(reader, "a") == "of-a"
    now += targets.SCALERS_SECONDS
    api.failure = error
    api.answers.clear()
    slow = asyncio.create_task(scaler(reader, "a"))
    await asyncio.sleep(0)
    assert await scaler(reader, "b") == "of-b"
    api.answers.set()
    assert await slow == "of-a"
    assert await scaler(reader, "b") == "of-b"
    assert api.lists == 2, "it is not tried again at each decision"
