"""Targets without a watch."""

import pytest

from autoscaler import targets
from autoscaler.starts import Starts
from serving.kube import Key
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
