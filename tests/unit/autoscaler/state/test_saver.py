"""States are stored in turn, while the ticks go on."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autoscaler.observation import Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.saver import StateSaver
from autoscaler.state.store import StateStore
from autoscaler.state.target_state import TargetState
from serving.kube import Key
from serving.objects import Object
from tests.rig.control_plane.convergence import running, until

KEY = Key("default", "a")


def learned() -> TargetState:
    state = TargetState(PolicyConfig(1, 9), uid="1")
    state.decide(Observation(5, Replicas(1, 1), Load(0, 5, 5, 5, 5, 0, 0)))
    return state


async def test_the_loop_goes_on_when_the_disk_is_busy() -> None:
    written, is_free = asyncio.Event(), threading.Event()
    loop, freed = asyncio.get_running_loop(), []

    class BusyStore(StateStore):
        def write(self, key: Key, uid: str, state: Object, *, synced: bool = True) -> None:
            loop.call_soon_threadsafe(written.set)
            freed.append(is_free.wait(2))

    saver = StateSaver({KEY: learned()}, BusyStore(Path("unused")), 0.001)
    async with running(saver.run()):
        await asyncio.wait_for(written.wait(), 20)
        is_free.set()
        await until(lambda: bool(freed), "the end of a write")
    assert freed[0], "the loop ran during the write"


async def test_states_are_stored_later_when_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, submit = StateStore(tmp_path), ThreadPoolExecutor.submit

    def refused_once(*arguments: Any, **options: Any) -> Any:
        if not caplog.records:
            raise RuntimeError("can't start new thread")
        return submit(*arguments, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused_once)
    async with running(StateSaver({KEY: learned()}, store, 0.001).run()):
        await until(lambda: store.read(KEY, "1") is not None, "a stored state")
    await asyncio.get_running_loop().shutdown_default_executor()  # a write may be open
    assert "no thread can be started" in caplog.text
