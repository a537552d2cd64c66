"""SIGKILL of the gateway interrupts no request; SIGKILL of Envoy interrupts requests for under 2 s."""

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from serving import clock
from serving.data_dir import DataDir
from serving.router.envoy.process import supervision
from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy
from serving.router.envoy.process.supervision import EnvoySupervision
from serving.system import processes
from tests.rig.machine.addresses import WORKER, own
from tests.rig.servers.gateway import GatewayRig, backend, endpoint_slice, route, settings_for_test

STABLE = own(3)
"""Of the session, as the starter has no worker."""
ROUTES = [route("digits", [("stable", 10_000)])]
SLICES = [endpoint_slice("digits-stable", [STABLE])]

STARTER = """
import asyncio, sys
from pathlib import Path
from dataclasses import replace
from tests.rig.servers.gateway import GatewayRig, settings_for_test
from tests.faults.processes.test_gateway_killed import ROUTES, SLICES
async def main():
    settings = settings_for_test()
    settings = replace(settings, gateway=replace(settings.gateway, port=int(sys.argv[2])))
    rig = GatewayRig(Path(sys.argv[1]), settings)
    await rig.start()
    await rig.serve(ROUTES, SLICES)
    print("serving", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_traffic_continues_and_envoy_is_adopted_when_its_starter_is_killed(tmp_path: Path) -> None:
    settings = settings_for_test()
    starter = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STARTER,
        str(tmp_path),
        str(settings.gateway.port),
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != WORKER} | {"PYTHONPATH": "."},
    )
    assert starter.stdout is not None
    successor = GatewayRig(tmp_path, settings)
    statuses: Counter[int] = Counter()
    try:
        async with backend(STABLE, 8080), aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            assert await starter.stdout.readline() == b"serving\n"
            stop = asyncio.Event()

            async def load() -> None:
                while not stop.is_set():
                    async with session.get(f"{successor.url}/default/digits/v2/x") as response:
                        statuses[response.status] += 1

            for _ in range(4):
                group.create_task(load())
            starter.kill()
            await starter.wait()
            adopted = successor.process.running()
            assert adopted is not None
            await successor.listen()
            requests_before = statuses.total()
            await successor.serve(ROUTES, SLICES)
            while statuses.total() < requests_before + 200:
                await asyncio.sleep(0.01)
            assert successor.process.running() == adopted
            stop.set()
    finally:
        await successor.stop()
    assert set(statuses) == {200}


async def test_killed_envoy_restarts_within_a_second_with_its_routes(tmp_path: Path) -> None:
    rig = GatewayRig(tmp_path, settings_for_test())
    await rig.start()
    envoy = EnvoySupervision(rig.process, rig.config(), rig.data_dir, lambda _: None)
    keeper = asyncio.create_task(envoy.run())
    try:
        async with backend(STABLE, 8080), aiohttp.ClientSession() as session:
            await rig.serve(ROUTES, SLICES)
            first_envoy = rig.process.running()
            assert first_envoy is not None
            os.kill(first_envoy.pid, signal.SIGKILL)
            killed = clock.monotonic()
            while True:
                try:
                    async with session.get(f"{rig.url}/default/digits/v2/x") as response:
                        assert response.status == 200
                        break
                except aiohttp.ClientError:
                    assert clock.monotonic() < killed + 5
                    await asyncio.sleep(0.02)
            downtime = clock.monotonic() - killed
            assert downtime < 2, f"{downtime:.2f} s; twice the documented second, for a loaded machine"
            await rig.serve([route("digits", [("stable", 10_000)], unweighted=["next"])], SLICES)
    finally:
        keeper.cancel()
        await rig.stop()


@contextlib.asynccontextmanager
async def supervised_gateway(root: Path) -> AsyncIterator[GatewayRig]:
    """Serve `ROUTES` with an Envoy that is kept running."""
    rig = GatewayRig(root, settings_for_test())
    await rig.start()
    envoy = EnvoySupervision(rig.process, rig.config(), rig.data_dir, lambda _: None)
    keeper = asyncio.create_task(envoy.run())
    try:
        async with backend(STABLE, 8080):
            await rig.serve(ROUTES, SLICES)
            yield rig
    finally:
        keeper.cancel()
        await rig.stop()


async def statuses_of_new_connections(rig: GatewayRig, count: int) -> set[int]:
    async def status() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{rig.url}/default/digits/v2/x") as answer,
        ):
            return answer.status

    return set(await asyncio.gather(*(status() for _ in range(count))))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
async def test_new_connections_wait_for_the_next_envoy_when_envoy_is_gone_or_hangs(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with supervised_gateway(tmp_path) as rig:
        for _ in range(3 if number == signal.SIGKILL else 1):
            envoy = rig.process.running()
            assert envoy is not None
            os.kill(envoy.pid, number)
            assert await statuses_of_new_connections(rig, 50) == {200}
            assert rig.process.running() not in (None, envoy)


async def test_connections_are_refused_when_envoy_ends_for_good(tmp_path: Path) -> None:
    async with supervised_gateway(tmp_path) as rig:
        pass
    with pytest.raises(aiohttp.ClientConnectorError):
        await statuses_of_new_connections(rig, 1)


SPIN = "print(flush=True)\nwhile True: pass"
READ = "print(flush=True)\nzeros = open('/dev/zero', 'rb', buffering=0)\nwhile True: zeros.read(1)"


class StandIn:
    """In place of Envoy: a process that computes all the time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        identity = processes.identity_of(process.pid)
        assert identity is not None
        self._envoy = RunningEnvoy(identity, "")
        self.starts = 0

    def running(self) -> RunningEnvoy | None:
        return self._envoy if processes.is_alive(self._envoy.process) else None

    def exit_code(self) -> int | None:
        return None

    def start(self, bootstrap: bytes) -> None:
        self.starts += 1


@contextlib.asynccontextmanager
async def supervised(
    program: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, busy_seconds: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, StandIn]]:
    """Supervise a program as an Envoy that answered once, from the first report of its silence on."""
    intervals = {"ASK": 0.02, "ANSWER": 0.05, "HANG": 0.2, "BUSY": busy_seconds, "CHECK": 0.05}
    for name, seconds in intervals.items():
        monkeypatch.setattr(supervision, f"{name}_SECONDS", seconds)
    problems: asyncio.Queue[str] = asyncio.Queue()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    stand_in = StandIn(process)
    envoy = EnvoySupervision(stand_in, b"", DataDir(folder), problems.put_nowait)  # type: ignore[arg-type]
    envoy._last_answer = clock.monotonic()
    keeper = asyncio.create_task(envoy.run())
    try:
        assert await problems.get() == "Envoy does not answer"
        yield process, stand_in
    finally:
        keeper.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_busy_envoy_is_kept_and_a_stopped_one_killed_when_neither_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(SPIN, tmp_path, monkeypatch, busy_seconds=60.0) as (spinning, envoy):
        await asyncio.sleep(5 * supervision.HANG_SECONDS)
        assert spinning.returncode is None
        spinning.send_signal(signal.SIGSTOP)
        assert await asyncio.wait_for(spinning.wait(), 10) == -signal.SIGKILL
        while not envoy.starts:
            await asyncio.sleep(0.01)


async def test_busy_envoy_is_killed_when_it_makes_no_system_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(SPIN, tmp_path, monkeypatch, busy_seconds=0.5) as (spinning, _):
        assert await asyncio.wait_for(spinning.wait(), 10) == -signal.SIGKILL


async def test_busy_envoy_is_kept_when_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with supervised(READ, tmp_path, monkeypatch, busy_seconds=0.5) as (reading, _):
        await asyncio.sleep(5 * supervision.BUSY_SECONDS)
        assert reading.returncode is None


class Ending:
    """In place of Envoy: each ends at once."""

    def __init__(self) -> None:
        self.starts: list[float] = []

    def running(self) -> None:
        return None

    def exit_code(self) -> int:
        return 1

    def start(self, _: bytes) -> None:
        self.starts.append(clock.monotonic())


@pytest.mark.parametrize("answered", [None, 0.0], ids=["never", "before"])
async def test_envoy_that_ends_after_each_start_is_reported_and_started_ever_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: float | None
) -> None:
    for name, seconds in {"RETRY": 0.02, "MOST_RETRY": 0.1, "PAUSE": 0.0}.items():
        monkeypatch.setattr(supervision, f"{name}_SECONDS", seconds)
    problems: asyncio.Queue[str] = asyncio.Queue()
    ending = Ending()
    envoy = EnvoySupervision(ending, b"", DataDir(tmp_path), problems.put_nowait)  # type: ignore[arg-type]
    envoy._last_answer = answered
    keeper = asyncio.create_task(envoy.run())
    async with asyncio.timeout(20):
        while len(ending.starts) < 6:
            await asyncio.sleep(0.01)
    keeper.cancel()
    texts = [problems.get_nowait() for _ in range(problems.qsize())]
    if answered is not None:
        assert texts.pop(0) == supervision.SILENT
    assert texts == ["Envoy ends without an answer (exit code 1); see its log"], "each Inference reports each"
    pauses = [later - earlier for earlier, later in pairwise(ending.starts[:6])]
    for pause, least in zip(pauses, (0.04, 0.08, 0.1, 0.1, 0.1), strict=True):
        assert pause >= least * 0.9


class Refused(Ending):
    """In place of Envoy: it has run, and cannot be started."""

    def start(self, _: bytes) -> None:
        super().start(b"")
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("has_answered", [False, True])
async def test_envoy_that_cannot_be_started_is_tried_again_without_a_longer_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_answered: bool
) -> None:
    for name, seconds in {
        "RETRY": 0.02,
        "MOST_RETRY": 60.0,
        "PAUSE": 0.0,
        "ASK": 0.01,
        "ANSWER": 0.02,
    }.items():
        monkeypatch.setattr(supervision, f"{name}_SECONDS", seconds)
    problems: asyncio.Queue[str] = asyncio.Queue()
    refused = Refused()
    envoy = EnvoySupervision(refused, b"", DataDir(tmp_path), problems.put_nowait)  # type: ignore[arg-type]
    envoy._last_answer = clock.monotonic() if has_answered else None
    keeper = asyncio.create_task(envoy.run())
    async with asyncio.timeout(20):
        while len(refused.starts) < 20:
            await asyncio.sleep(0.01)
    keeper.cancel()
    assert "Envoy cannot start" in problems.get_nowait()
    assert problems.empty()


SLEEP = "import time\nprint(flush=True)\ntime.sleep(600)"


async def test_envoy_gets_another_question_when_the_gateway_itself_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(SLEEP, tmp_path, monkeypatch, busy_seconds=60.0) as (silent, _):
        monkeypatch.setattr(supervision, "HANG_SECONDS", 1.0)
        stopped = clock.monotonic()
        monkeypatch.setattr(clock, "monotonic", lambda before=clock.monotonic: before() + 60)
        assert await asyncio.wait_for(silent.wait(), 20) == -signal.SIGKILL
        assert clock.monotonic() - 60 - stopped > 0.5


async def test_envoy_is_adopted_when_its_identity_file_is_missing(tmp_path: Path) -> None:
    rig = GatewayRig(tmp_path, settings_for_test())
    await rig.start()
    try:
        running = rig.process.running()
        (rig.data_dir.gateway / "envoy.json").unlink()
        assert EnvoyProcess(rig.data_dir, rig.settings.gateway).running() == running
    finally:
        await rig.stop()
    assert EnvoyProcess(rig.data_dir, rig.settings.gateway).running() is None
