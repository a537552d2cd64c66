"""A namespace with its controllers, for each test."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.kube import connect
from serving.resources import kinds
from serving.settings import ModelPolicySettings
from tests.rig.control_plane.model_controllers import ModelLife, control
from tests.rig.servers.registry_server import RegistryServer

_NUMBERS = itertools.count()


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[RegistryServer]:
    server = RegistryServer(tmp_path / "registry").start()
    yield server
    server.stop()


@pytest.fixture
def policy() -> ModelPolicySettings:
    """The policy of the installation."""
    return ModelPolicySettings()


@pytest.fixture
async def life(api_server: DataDir, tmp_path: Path, policy: ModelPolicySettings) -> AsyncIterator[ModelLife]:
    namespace = f"life-{next(_NUMBERS)}"
    data = DataDir(tmp_path / "data")
    async with await connect(api_server.kubeconfig, component="test") as kube:
        await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        controllers = asyncio.create_task(control(kube, data, policy))
        try:
            life = ModelLife(kube, data, namespace)
            yield life
            await life.clear()
        finally:
            controllers.cancel()
            await asyncio.gather(controllers, return_exceptions=True)
            await asyncio.sleep(0.05)  # connections that were closed end in the loop's next turns


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., str]:
    """Makes a directory of files; returns its path."""

    def make(name: str = "files", **contents: str) -> str:
        directory = tmp_path / name
        directory.mkdir()
        for file, text in (contents or {"model": "weights"}).items():
            (directory / f"{file}.joblib").write_text(text)
        return str(directory)

    return make
