"""The process that fits: it is started again when it was killed or hangs, and leaves with its parent."""

import asyncio
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.context import SpawnContext, SpawnProcess

import numpy as np
import pytest

from autoscaler.forecast.fit import Fit, fit
from autoscaler.forecast.history import History
from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.state.fitting import Fitting, Worker
from autoscaler.state.target_state import TargetState
from serving import errors
from serving.kube import Key
from tests.rig.servers import preloaded

NOW = 1_700_000_000.0


def levels(seed: int = 1, count: int = 100) -> "array[float]":
    return array("f", np.cumsum(np.random.default_rng(seed).normal(0, 0.1, count)))


def state(seed: int = 1, count: int = 100, **config: object) -> TargetState:
    target = TargetState(PolicyConfig(max_replicas=5, capacity=Capacity(1.0, 1.0), **config))
    target.decide(Observation(NOW, Replicas(1, 1, ()), Load(NOW - 5, NOW, 50, 50, 50, 0, 0), {}))
    assert target.sizer is not None
    history = History()
    for i, level in enumerate(levels(seed, count)):
        history.add(1000 + i, level)
    target.sizer.history.restore(**history.state())
    return target


def children() -> list[int]:
    children = (child for child in multiprocessing.active_children() if child.name != preloaded.NAME)
    return [pid for child in children if (pid := child.pid) is not None]


async def until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_worker_is_restarted_when_it_is_killed_or_hangs() -> None:
    worker = Worker(60)
    try:
        fitted, expected = await worker.fit(levels()), fit(levels())
        assert fitted is not None
        assert expected is not None
        assert fitted.state() == expected.state()
        (first,) = children()
        assert os.getpriority(os.PRIO_PROCESS, first) > os.getpriority(os.PRIO_PROCESS, 0)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(errors.Unavailable, match="died"):
            await worker.fit(levels())
        assert await worker.fit(array("f", [1.0] * 5)) is None
        (second,) = children()
        assert second != first
        os.kill(second, signal.SIGSTOP)
        worker._timeout = 0.1
        with pytest.raises(errors.Unavailable, match=r"longer than 0\.1 s"):
            await worker.fit(levels())
        assert not children()
    finally:
        worker.end()


async def test_targets_with_enough_history_are_fitted_and_the_process_ends_with_the_round() -> None:
    targets = {
        Key("a", "long"): state(),
        Key("a", "short"): state(count=20),
        Key("a", "fixed"): state(min_replicas=5),
        Key("a", "disabled"): state(prediction="Disabled"),
        Key("a", "other"): state(seed=2),
    }
    running = asyncio.create_task(Fitting(targets, first=0.0, every=0.4).run())

    def fitted() -> set[str]:
        return {
            key.name for key, each in targets.items() if each.sizer and each.sizer.state()["forecast"]["fit"]
        }

    try:
        await until(lambda: len(fitted()) == 2)
        assert fitted() == {"long", "other"}
        states = [targets[Key("a", name)].learned_state() for name in ("long", "other")]
        assert [state["forecast"]["fit"] for state in states if state] == [
            model.state() for seed in (1, 2) if (model := fit(levels(seed))) is not None
        ]
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert not children()


async def test_other_targets_are_fitted_when_each_fit_of_one_kills_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    targets = {Key("a", "bad"): state(), Key("a", "good"): state(seed=2)}
    bad = targets[Key("a", "bad")].sizer
    assert bad is not None
    running = asyncio.create_task(Fitting(targets, first=0.0, every=60.0).run())
    try:
        await until(lambda: bool(children()))
        os.kill(children()[0], signal.SIGKILL)
        good = targets[Key("a", "good")].sizer
        assert good is not None
        await until(lambda: good.state()["forecast"]["fit"] is not None)
        assert bad.state()["forecast"]["fit"] is None
        assert "a/bad keeps its previous fit" in caplog.text
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert not children()


async def test_fit_is_not_used_when_the_capacity_of_a_replica_was_measured_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = state()

    async def fit_while_measured(_: Worker, earlier: Sequence[float]) -> Fit | None:
        target.configure(replace(target.config, capacity=Capacity(50.0, 5.0)))
        return fit(earlier)

    monkeypatch.setattr(Worker, "fit", fit_while_measured)
    await Fitting({Key("a", "a"): target}, every=0.0)._round()
    assert target.sizer is not None
    assert target.sizer.state()["forecast"]["fit"] is None


@pytest.mark.parametrize("cause", ["no-process", "no-descriptor", "no-thread"])
async def test_targets_are_fitted_in_a_later_round_when_no_process_or_thread_can_be_started(
    cause: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_full, refused = True, asyncio.Event()
    place, name, error = {
        "no-process": (SpawnProcess, "start", OSError(errno.EAGAIN, "no process")),
        "no-descriptor": (SpawnContext, "Pipe", OSError(errno.EMFILE, "too many open files")),
        "no-thread": (ThreadPoolExecutor, "submit", RuntimeError("can't start new thread")),
    }[cause]
    original, loop = getattr(place, name), asyncio.get_running_loop()

    def refusing(*arguments: object, **options: object) -> object:
        if is_full:
            loop.call_soon_threadsafe(refused.set)
            raise error
        return original(*arguments, **options)

    monkeypatch.setattr(place, name, refusing)
    target = state()
    assert target.sizer is not None
    history = target.sizer
    running = asyncio.create_task(Fitting({Key("a", "a"): target}, first=0.0, every=0.1).run())
    try:
        async with asyncio.timeout(30):
            await refused.wait()
        is_full = False
        await until(lambda: history.state()["forecast"]["fit"] is not None)
        assert "a/a keeps its previous fit" in caplog.text
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert not children()


IMPORTS = """
import sys, autoscaler.controller
sys.exit(" ".join({"numpy", "scipy", "pandas", "statsmodels"} & sys.modules.keys()) or 0)
"""


def test_controller_does_not_import_fitting_libraries() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PARENT = """
import asyncio, multiprocessing, time
from array import array
from autoscaler.state.fitting import Worker

async def main():
    worker = Worker(60)
    await worker.fit(array("f", [1.0]))
    print(multiprocessing.active_children()[0].pid, flush=True)
    time.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_fitting_process_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    asyncio.run(until(lambda: not is_alive(pid)))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
