"""What was learned outlives the controller, and a file that is none is left out."""

from pathlib import Path

import pytest

from autoscaler.observation import Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.store import MOST_BYTES, StateStore
from autoscaler.state.target_state import TargetState
from serving.kube import Key

KEY = Key("default", "digits.a")
CONFIG = PolicyConfig(1, 9)


def learned() -> TargetState:
    scaled = TargetState(CONFIG)
    for now in range(0, 600, 5):
        load = Load(now, now + 5, 500, 500, 500, 10, 0, 0.1)
        scaled.decide(Observation(now + 5, Replicas(5, 5, started=(42.0,)), load))
    return scaled


def test_restart_keeps_learned_state(tmp_path: Path) -> None:
    store, before = StateStore(tmp_path / "autoscaler"), learned()
    state = before.state()
    assert state is not None
    store.write(KEY, state)
    after = TargetState(CONFIG, store.read(KEY))
    decision = after.decide(Observation(700, Replicas(5, 5), Load(695, 700, 500, 500, 500, 10, 0, 0.1)))
    assert decision.startup == 42.0
    assert decision.capacity > 0
    assert after.learned(705) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"capacity": 3}', '{"capacity": {}, "startup": []}'])
def test_broken_file_is_ignored_and_logged(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "default.digits.a.json").write_text(text)
    scaled = TargetState(CONFIG, StateStore(tmp_path).read(KEY))
    scaled.decide(Observation(5, Replicas(1, 1), Load(0, 5, 500, 500, 500, 10, 0, 0.1)))
    assert caplog.records


def test_too_large_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "default.digits.a.json").write_bytes(b"{" + b" " * MOST_BYTES + b"}")
    assert StateStore(tmp_path).read(KEY) is None


def test_state_of_a_deleted_autoscaler_is_removed(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.write(KEY, {"a": 1})
    store.forget(KEY)
    assert store.read(KEY) is None
    assert list(tmp_path.iterdir()) == []
