"""ModelVersions when the API, or the process that builds and pushes them, is killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.data_dir import DataDir
from serving.kube import connect
from serving.resources import kinds
from tests.rig.control_plane.model_controllers import ModelLife, control
from tests.rig.servers.api_process import ApiProcess
from tests.rig.servers.registry_server import RegistryServer

pytestmark = pytest.mark.timeout(90)
_PROGRAM = """
import asyncio, sys
from pathlib import Path
from serving.kube import connect
from serving.data_dir import DataDir
from tests.rig.control_plane.model_controllers import control

async def main():
    async with await connect(Path(sys.argv[1]), component="test") as kube:
        await control(kube, DataDir(Path(sys.argv[2])))

asyncio.run(main())
"""


@pytest.fixture
def api(tmp_path: Path) -> Any:
    process = ApiProcess(tmp_path / "api").start()
    yield process
    process.stop()


@pytest.fixture
def registry(tmp_path: Path) -> Any:
    server = RegistryServer(tmp_path / "registry").start()
    yield server
    server.stop()


@pytest.fixture
async def life(api: ApiProcess, registry: RegistryServer, tmp_path: Path) -> AsyncIterator[ModelLife]:
    """The user of an API without controllers, with a Model that has a registry."""
    async with await connect(api.data_dir.kubeconfig, component="test") as kube:
        user = ModelLife(kube, DataDir(tmp_path / "data"), "default")
        await user.with_registry(registry.host)
        yield user


def weights(tmp_path: Path, number: int) -> str:
    directory = tmp_path / f"files-{number}"
    directory.mkdir()
    (directory / "model.joblib").write_bytes(os.urandom(4 * 1024 * 1024))
    return str(directory)


async def test_versions_become_ready_when_the_api_is_killed_repeatedly(
    api: ApiProcess, life: ModelLife, tmp_path: Path
) -> None:
    controllers = asyncio.create_task(control(life.kube, life.data))
    try:
        for number in range(2):
            await life.version(f"v{number}", path=weights(tmp_path, number))
            await asyncio.to_thread(api.stop, signal.SIGKILL)
            await asyncio.to_thread(api.start)
        for number in range(2):
            status = await life.ready(f"v{number}")
            assert life.store.verify(status["digest"], deep=True)
            assert life.store.origin(status["digest"]) == status["image"]
    finally:
        controllers.cancel()
        await asyncio.gather(controllers, return_exceptions=True)


async def test_a_version_becomes_ready_when_its_builder_is_killed_at_any_moment(
    api: ApiProcess, registry: RegistryServer, life: ModelLife, tmp_path: Path
) -> None:
    await life.version("v1", path=weights(tmp_path, 1))
    phases: list[str] = []
    moments: list[Callable[[], bool]] = [
        lambda: bool(life.store.images()),
        lambda: any(registry.data.rglob("_uploads/*")) or any(registry.data.rglob("_layers/*")),
        lambda: "Ready" in phases,
    ]
    program = [sys.executable, "-c", _PROGRAM, str(api.data_dir.kubeconfig), str(life.data.root)]
    for moment in moments:
        builder = await asyncio.create_subprocess_exec(*program)
        try:
            async with asyncio.timeout(30):
                while not moment():
                    await asyncio.sleep(0.01)
                    model_version = await life.get(kinds.MODEL_VERSION, "v1")
                    phases.append(model_version.get("status", {}).get("phase", ""))
        finally:
            builder.kill()
            await builder.wait()
    status = await life.ready("v1")
    assert status["image"] == f"{registry.host}/models/digits@{status['digest']}"
    assert life.store.verify(status["digest"], deep=True)
    assert [path for path in (life.data.models / "tmp").iterdir() if path.is_dir()] == []
