"""SIGKILL of the gateway's process stops no request; SIGKILL of Envoy stops requests for less than a second or two."""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import aiohttp

from serving import clock
from serving.router.envoy.process import EnvoyProcess
from serving.router.gateway import _keep_alive
from tests.rig.addresses import own
from tests.rig.gateway import World, backend, endpoint_slice, route, settings_for_test

STABLE = own(3)
ROUTES = [route("digits", [("stable", 10_000)])]
SLICES = [endpoint_slice("digits-stable", [STABLE])]

STARTER = """
import asyncio, sys
from pathlib import Path
from dataclasses import replace
from tests.rig.gateway import World, settings_for_test
from tests.faults.processes.test_gateway_killed import ROUTES, SLICES
async def main():
    settings = settings_for_test()
    settings = replace(settings, gateway=replace(settings.gateway, port=int(sys.argv[2])))
    world = World(Path(sys.argv[1]), settings)
    await world.start()
    await world.serve(ROUTES, SLICES)
    print("serving", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_traffic_goes_on_and_envoy_is_adopted_when_its_starter_is_killed(tmp_path: Path) -> None:
    settings = settings_for_test()
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, str(tmp_path), str(settings.gateway.port),
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": "."},
    )  # fmt: skip
    assert starter.stdout is not None
    second = World(tmp_path, settings)
    statuses: Counter[int] = Counter()
    try:
        async with backend(STABLE, 8080), aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            assert await starter.stdout.readline() == b"serving\n"
            stop = asyncio.Event()

            async def load() -> None:
                while not stop.is_set():
                    async with session.get(f"{second.url}/default/digits/v2/x") as answer:
                        statuses[answer.status] += 1

            for _ in range(4):
                group.create_task(load())
            starter.kill()
            await starter.wait()
            adopted = second.process.running()
            assert adopted is not None
            await second.listen()
            before = statuses.total()
            await second.serve(ROUTES, SLICES)
            while statuses.total() < before + 200:
                await asyncio.sleep(0.01)
            assert second.process.running() == adopted
            stop.set()
    finally:
        await second.stop()
    assert set(statuses) == {200}


async def test_a_killed_envoy_is_back_within_a_second_with_the_routes_it_had(tmp_path: Path) -> None:
    world = World(tmp_path, settings_for_test())
    await world.start()
    keeper = asyncio.create_task(_keep_alive(world.process, world.config(), world.settings))
    try:
        async with backend(STABLE, 8080), aiohttp.ClientSession() as session:
            await world.serve(ROUTES, SLICES)
            first = world.process.running()
            assert first is not None
            os.kill(first.pid, signal.SIGKILL)
            killed = clock.monotonic()
            while True:
                try:
                    async with session.get(f"{world.url}/default/digits/v2/x") as answer:
                        assert answer.status == 200
                        break
                except aiohttp.ClientError:
                    assert clock.monotonic() < killed + 5
                    await asyncio.sleep(0.02)
            back = clock.monotonic() - killed
            assert back < 2, f"{back:.2f} s; twice the promise, for a loaded machine"
            await world.serve([route("digits", [("stable", 10_000)], unweighted=["next"])], SLICES)
    finally:
        keeper.cancel()
        await world.stop()


async def test_an_envoy_whose_starter_was_killed_before_it_wrote_down_who_it_is_is_adopted(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, settings_for_test())
    await world.start()
    try:
        first = world.process.running()
        (world.data_dir.gateway / "envoy.json").unlink()
        assert EnvoyProcess(world.data_dir, world.settings.gateway).running() == first
    finally:
        await world.stop()
    assert EnvoyProcess(world.data_dir, world.settings.gateway).running() is None
