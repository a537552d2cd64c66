"""Components that are killed on a full disk serve again, and write their records when it has room."""

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.kube import Kube, connect
from serving.kube.connection.client import Listing
from serving.resources import kinds
from serving.system import processes
from tests.faults.processes.test_up_killed import Up, running, slipway, until
from tests.rig.machine.full_disk import small_file_system, top_up
from tests.rig.servers.api_process import ApiProcess

MAP = {"metadata": {"name": "kept", "namespace": "default"}, "data": {"k": "v" * 1000}}


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # A short path: `up` has Unix sockets in it.
    with small_file_system(tmp_path_factory.mktemp("disk") / "small", "size=64m") as path:
        yield path


async def test_an_api_that_is_killed_on_a_full_disk_serves_reads(small: Path) -> None:
    server = ApiProcess(small).start()
    try:
        async with await connect(server.data_dir.kubeconfig, component="test") as kube:
            await kube.create(kinds.CONFIG_MAP, MAP)
            ballast = small / "ballast"
            top_up(ballast)
            server.stop(signal.SIGKILL)
            top_up(ballast)
            server.start()
            assert (await kube.get(kinds.CONFIG_MAP, "default", "kept"))["data"] == MAP["data"]
            with pytest.raises(errors.ApiError) as refused:
                await _create_many(kube)
            assert refused.value.code == 507
            ballast.unlink()
            await kube.create(kinds.CONFIG_MAP, {**MAP, "metadata": {"name": "room"}})
    finally:
        server.stop(signal.SIGKILL)


async def test_components_that_are_killed_on_a_full_disk_are_recognised(small: Path) -> None:
    where = DataDir(small)
    up = Up(where, "--port", "0", "--gateway-port", "0").ready()
    try:
        before = running(where)
        ballast = small / "ballast"
        top_up(ballast)
        for name in ("api", "gateway"):
            processes.send_signal(before[name], signal.SIGKILL)
            top_up(ballast)
        async with await connect(where.kubeconfig, component="test") as kube:
            until(lambda: _ends(up) == ["api", "gateway"], "up has noticed both ends")
            assert (await _namespaces(kube)).items
        ballast.unlink()
        until(lambda: {"api", "gateway"} <= set(running(where)), "the records are written")
        assert _ends(up) == ["api", "gateway"]
        after = running(where)
        assert all(after[name] != before[name] for name in ("api", "gateway"))
    finally:
        up.process.terminate()
        assert up.process.wait(60) == 0, up.text()


async def test_next_up_serves_on_a_full_disk_and_reports_it(small: Path) -> None:
    where = DataDir(small)
    up = Up(where, "--port", "0", "--gateway-port", "0").ready()
    try:
        before = running(where)
        up.process.kill()
        up.process.wait()
        for name in ("api", "gateway"):
            processes.send_signal(before[name], signal.SIGKILL)
        ballast = small / "ballast"
        top_up(ballast)
        up = Up(where).ready()
        assert f"{small}: No space left on device. What runs is served" in up.text()
        async with await connect(where.kubeconfig, component="test") as kube:
            assert (await _namespaces(kube)).items
        ballast.unlink()
        until(lambda: set(COMPONENTS) == set(running(where)), "the records are written")
        until(lambda: processes.read_running(where.identity("up")) is not None, "up is recorded")
    finally:
        up.process.terminate()
        assert up.process.wait(60) == 0, up.text()


def test_first_up_on_a_full_disk_is_refused_with_the_reason(small: Path) -> None:
    top_up(small / "ballast")
    refused = slipway("up", "--data-dir", str(small / "data"), "--port", "0", "--gateway-port", "0")
    assert refused.returncode == 1
    assert "No space left on device" in refused.stderr
    assert "Traceback" not in refused.stderr


async def _create_many(kube: Kube) -> None:
    for number in range(200):
        await kube.create(kinds.CONFIG_MAP, {**MAP, "metadata": {"name": f"m-{number}"}})


def _ends(up: Up) -> list[str]:
    return sorted(re.findall(r"^(\w+) ended ", up.text(), re.MULTILINE))


async def _namespaces(kube: Kube) -> Listing:
    """Return the namespaces as soon as the API answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await kube.list(kinds.NAMESPACE)
            except errors.Unavailable:
                await asyncio.sleep(0.05)
