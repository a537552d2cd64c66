"""The search process: its plans, its restart after death, and its end when idle or with its parent."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from serving import errors
from tests.objects.tuning import experiments
from tests.rig.servers import preloaded
from tuner.planning.exchange import PlanRequest, RecordedExperiment
from tuner.search_worker import SearchWorker
from tuner.settings import DEFAULTS

REQUEST = PlanRequest(
    RecordedExperiment(experiments.experiment(), []),
    None,
    {"v1": experiments.model_version()},
    [],
    DEFAULTS,
    {},
)


def children() -> list[int]:
    children = (child for child in multiprocessing.active_children() if child.name != preloaded.NAME)
    return [pid for child in children if (pid := child.pid) is not None]


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_killed_search_process_is_restarted_and_ends_when_idle() -> None:
    worker = SearchWorker(idle_seconds=0.2)
    first = asyncio.create_task(worker.plan(REQUEST))
    await until(lambda: bool(children()))
    (killed,) = children()
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(errors.Temporary) as raised:
        await first
    assert raised.value.reason == "SearchDied"
    requests = asyncio.gather(*(worker.plan(REQUEST) for _ in range(3)))
    restarted: list[int] = []

    def is_restarted() -> bool:  # the killed process may be listed until it is waited for
        restarted[:] = [pid for pid in children() if pid != killed]
        return bool(restarted)

    await until(is_restarted)
    (pid,) = restarted
    await until(lambda: os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0))
    plans = await requests
    assert [[trial["metadata"]["name"] for trial in plan.trials] for plan in plans] == [["pe-1"]] * 3
    await until(lambda: not children())


IMPORTS = """
import sys, tuner.controller, tuner.trials.controller
sys.exit(" ".join({"numpy", "scipy", "sklearn", "skopt", "locust", "gevent"} & sys.modules.keys()) or 0)
"""


def test_controllers_import_neither_search_nor_load() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PARENT = """
import asyncio, multiprocessing, time
from tests.integration.tuner.test_search_process import REQUEST
from tuner.search_worker import SearchWorker

async def main():
    planning = asyncio.create_task(SearchWorker(60).plan(REQUEST))
    while not multiprocessing.active_children():
        await asyncio.sleep(0.01)
    print(multiprocessing.active_children()[0].pid, flush=True)
    await planning
    time.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_search_process_ends_when_its_parent_is_killed() -> None:
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
