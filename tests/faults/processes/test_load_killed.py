"""SIGKILL and SIGSTOP of the processes of a load generator, and SIGKILL of their parent."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serving.errors import Temporary
from tests.rig.machine.load_users import user_ids
from tuner.load import locust_process
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan, LoadRequest
from tuner.settings import LoadSettings

PLAN = LoadPlan("closed", (LoadRequest("GET", "/"),))
NOBODY = "http://127.0.0.1:9"
DEADLINE = 20.0

OUR_PROGRAM = """
import asyncio, sys
from tests.rig.machine.load_users import user_ids
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan, LoadRequest
from tuner.settings import LoadSettings

async def main():
    plan = LoadPlan("closed", (LoadRequest("GET", "/"),))
    started = Generator.start("http://127.0.0.1:9", plan, LoadSettings(), [CORES], user_ids=user_ids())
    async with started as generator:
        print(*(locust._process.pid for locust in generator._locusts), flush=True)
        await generator.window(2, 600)

asyncio.run(main())
"""


def pids(generator: Generator) -> list[int]:
    return [locust._process.pid for locust in generator._locusts]


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def wait_ended(locusts: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not all(has_ended(pid) for pid in locusts):
        assert time.monotonic() < deadline, f"still running: {[pid for pid in locusts if not has_ended(pid)]}"
        time.sleep(0.02)


async def test_killed_locust_fails_its_window_at_once_and_ends_the_others() -> None:
    core = min(os.sched_getaffinity(0))
    async with Generator.start(NOBODY, PLAN, LoadSettings(), [core, core], user_ids=user_ids()) as generator:
        locusts = pids(generator)
        window = asyncio.create_task(generator.window(2, 600))
        await asyncio.sleep(0.3)
        os.kill(locusts[1], signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(Temporary, match="locust ended with signal 9") as raised:
            await window
        assert time.monotonic() - killed < 5
    assert raised.value.reason == "LoadFailed"
    wait_ended(locusts)


async def test_a_locust_that_hangs_fails_its_window_after_the_reply_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locust_process, "STOP_SECONDS", 0.2)
    settings = dataclasses.replace(LoadSettings(), reply_timeout=0.5)
    async with Generator.start(NOBODY, PLAN, settings, user_ids=user_ids()) as generator:
        locusts = pids(generator)
        await generator.window(1, 0.1)
        os.kill(locusts[0], signal.SIGSTOP)
        with pytest.raises(Temporary, match=r"did not answer within 0\.5 s") as raised:
            await generator.window(1, 0.1)
    assert raised.value.reason == "LoadFailed"
    assert all(has_ended(pid) for pid in locusts)


async def test_a_cancelled_window_leaves_no_locust() -> None:
    locusts: list[int] = []

    async def drive() -> None:
        async with Generator.start(NOBODY, PLAN, LoadSettings(), user_ids=user_ids()) as generator:
            locusts.extend(pids(generator))
            await generator.window(1, 600)

    task = asyncio.create_task(drive())
    async with asyncio.timeout(DEADLINE):
        while not locusts:
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(has_ended(pid) for pid in locusts)


def test_stopped_locust_does_not_outlive_our_killed_process() -> None:
    core = min(os.sched_getaffinity(0))
    source = OUR_PROGRAM.replace("CORES", f"{core}, {core}")
    locusts: list[int] = []
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        locusts += [int(pid) for pid in process.stdout.readline().split()]
        os.kill(locusts[0], signal.SIGSTOP)
        process.kill()
    try:
        assert len(locusts) == 2
        wait_ended(locusts)
    finally:
        for pid in locusts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
