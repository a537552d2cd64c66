"""What was learned outlives the controller, and a file that is none is left out."""

import os
from pathlib import Path

import pytest

from autoscaler.observation import Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.store import MOST_BYTES, StateStore
from autoscaler.state.target_state import TargetState
from serving.kube import Key

KEY = Key("default", "digits.a")
UID = "1"
CONFIG = PolicyConfig(1, 9)


def learned() -> TargetState:
    scaled = TargetState(CONFIG)
    for now in range(0, 600, 5):
        load = Load(now, now + 5, 500, 500, 500, 10, 0, 0.1)
        scaled.decide(Observation(now + 5, Replicas(5, 5, started=(42.0,)), load))
    return scaled


def test_restart_keeps_learned_state(tmp_path: Path) -> None:
    store, before = StateStore(tmp_path / "autoscaler"), learned()
    state = before.learned_state()
    assert state is not None
    store.write(KEY, UID, state)
    after = TargetState(CONFIG, store.read(KEY, UID))
    decision = after.decide(Observation(700, Replicas(5, 5), Load(695, 700, 500, 500, 500, 10, 0, 0.1)))
    assert decision.startup == 42.0
    assert decision.capacity > 0
    assert after.learned_status(705) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"capacity": 3}', '{"capacity": {}, "startup": []}'])
def test_broken_file_is_ignored_and_logged(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "default.digits.a.json").write_text(text)
    scaled = TargetState(CONFIG, StateStore(tmp_path).read(KEY, UID))
    scaled.decide(Observation(5, Replicas(1, 1), Load(0, 5, 500, 500, 500, 10, 0, 0.1)))
    assert caplog.records


def test_state_is_on_the_disk_when_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replace = os.replace

    def replace_in_order(source: str, target: Path) -> None:
        steps.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda _: steps.append("sync"))
    monkeypatch.setattr(os, "replace", replace_in_order)
    StateStore(tmp_path).write(KEY, UID, {"a": 1})
    assert steps == ["sync", "replace"]


def test_too_large_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "default.digits.a.json").write_bytes(b"{" + b" " * MOST_BYTES + b"}")
    assert StateStore(tmp_path).read(KEY, UID) is None


def test_state_of_a_deleted_autoscaler_is_removed(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.write(KEY, UID, {"a": 1})
    store.forget(KEY)
    assert store.read(KEY, UID) is None
    assert list(tmp_path.iterdir()) == []


def test_state_of_an_earlier_autoscaler_of_the_same_name_is_not_taken(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.write(KEY, "an-earlier-one", {"a": 1})
    assert store.read(KEY, UID) is None


def test_state_that_an_older_version_stored_is_taken(tmp_path: Path) -> None:
    (tmp_path / "default.digits.a.json").write_text('{"a": 1}')
    assert StateStore(tmp_path).read(KEY, UID) == {"a": 1}


@pytest.mark.parametrize(
    ("namespace", "left"), [("", {"default"}), ("team", {"default", "other"})], ids=["all", "team"]
)
def test_states_of_autoscalers_that_do_not_exist_are_removed(
    tmp_path: Path, namespace: str, left: set[str]
) -> None:
    store = StateStore(tmp_path / "autoscaler")
    store.retain({KEY})
    for key in (KEY, Key("other", KEY.name), Key("team", KEY.name)):
        store.write(key, UID, {"a": 1})
    store.retain({KEY}, namespace)
    assert {path.name.partition(".")[0] for path in (tmp_path / "autoscaler").iterdir()} == left
