"""The keyed queue: one worker per key, no key lost, failures retried with back-off."""

import asyncio
import contextlib

import pytest

from serving import errors
from serving.kube.informer import BUSY_PAUSE_CAP_SECONDS, Key
from serving.kube.loop import Reconciler, Result
from serving.settings import ControllerSettings

KEY = Key("default", "a")
FAST = ControllerSettings(workers=4, backoff_base_seconds=0.001, backoff_cap_seconds=0.01)


@contextlib.asynccontextmanager
async def running(reconciler: Reconciler[Key]):
    task = asyncio.create_task(reconciler.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_key_added_many_times_is_reconciled_once() -> None:
    calls = 0
    reconciled = asyncio.Event()

    async def reconcile(key: Key) -> None:
        nonlocal calls
        calls += 1
        reconciled.set()

    reconciler = Reconciler("test", reconcile, FAST)
    for _ in range(10):
        reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(2):
        await reconciled.wait()
        await asyncio.sleep(0)
    assert calls == 1


async def test_key_added_during_its_reconciliation_is_reconciled_once_more() -> None:
    active = most_active = calls = 0
    release, reconciled_again = asyncio.Event(), asyncio.Event()

    async def reconcile(key: Key) -> None:
        nonlocal active, most_active, calls
        active, calls = active + 1, calls + 1
        most_active = max(most_active, active)
        if calls == 1:
            reconciler.add(KEY)
            release.set()
            await asyncio.sleep(0)
        else:
            reconciled_again.set()
        active -= 1

    reconciler = Reconciler("test", reconcile, FAST)
    reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(2):
        await reconciled_again.wait()
    assert (calls, most_active) == (2, 1)


@pytest.mark.parametrize(
    "error",
    [
        errors.Unavailable("down"),
        errors.Conflict(409, "Conflict", "stale"),
        errors.Temporary("R", "m"),
        ValueError("bug"),
    ],
)
async def test_key_is_reconciled_again_when_it_fails(error: Exception) -> None:
    calls = 0
    reconciled = asyncio.Event()

    async def reconcile(key: Key) -> None:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise error
        reconciled.set()

    reconciler = Reconciler("test", reconcile, FAST)
    reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(5):
        await reconciled.wait()
    assert calls == 4


async def test_key_is_reconciled_again_when_requeue_is_requested() -> None:
    calls = 0
    reconciled = asyncio.Event()

    async def reconcile(key: Key) -> Result | None:
        nonlocal calls
        calls += 1
        if calls == 2:
            reconciled.set()
            return None
        return Result(requeue_after=0.001)

    reconciler = Reconciler("test", reconcile, FAST)
    reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(2):
        await reconciled.wait()


async def test_reconciliation_of_a_key_cancels_its_timer() -> None:
    reconciled: list[Key] = []
    other_key = Key("default", "b")

    async def reconcile(key: Key) -> None:
        reconciled.append(key)

    reconciler = Reconciler("test", reconcile, FAST)
    async with running(reconciler), asyncio.timeout(2):
        reconciler.add_after(KEY, 0.02)
        reconciler.add_after(KEY, 0.01)  # a burst: the earliest stays
        reconciler.add_after(KEY, 0.03)
        reconciler.add(KEY)
        reconciler.add_after(other_key, 0.06)
        while other_key not in reconciled:
            await asyncio.sleep(0.001)
    assert reconciled == [KEY, other_key]


async def test_no_traceback_is_logged_when_the_api_forbids_a_write(caplog: pytest.LogCaptureFixture) -> None:
    reconciled = asyncio.Event()

    async def reconcile(key: Key) -> None:
        if reconciled.is_set():
            return
        reconciled.set()
        raise errors.Forbidden(403, "Forbidden", "namespace a is being terminated")

    reconciler = Reconciler("test", reconcile, FAST)
    reconciler.add(KEY)
    with caplog.at_level("INFO"):
        async with running(reconciler), asyncio.timeout(2):
            while "being terminated" not in caplog.text:
                await asyncio.sleep(0.001)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("error", [errors.Internal(500, "InternalError", "etcd"), errors.Busy("", 0.0)])
async def test_key_is_reconciled_again_without_a_traceback_when_the_api_fails(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [error]
    reconciled = asyncio.Event()

    async def reconcile(key: Key) -> None:
        if failures:
            raise failures.pop()
        reconciled.set()

    reconciler = Reconciler("test", reconcile, FAST)
    reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(2):
        await reconciled.wait()
    assert not [record for record in caplog.records if record.exc_info]


async def test_key_waits_half_a_minute_at_most_when_a_busy_api_asks_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def reconcile(key: Key) -> None:
        raise errors.Busy("maintenance", 3600.0)

    reconciler = Reconciler("test", reconcile, FAST)
    monkeypatch.setattr(reconciler, "add_after", lambda key, seconds: waits.append(seconds))
    reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(2):
        while not waits:
            await asyncio.sleep(0.001)
    assert waits == [BUSY_PAUSE_CAP_SECONDS]


async def test_back_off_grows_when_a_busy_api_asks_for_no_pause() -> None:
    times: list[float] = []
    reconciled = asyncio.Event()

    async def reconcile(key: Key) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 5:
            raise errors.Busy("too many requests", 0.0)
        reconciled.set()

    reconciler = Reconciler("test", reconcile, FAST)
    reconciler.add(KEY)
    async with running(reconciler), asyncio.timeout(5):
        await reconciled.wait()
    assert times[-1] - times[0] >= 0.001 + 0.002 + 0.004 + 0.008
