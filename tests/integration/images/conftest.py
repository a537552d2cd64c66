"""A real registry, and images to move."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from serving.images.building.model_image import Built, build_image
from serving.images.registry import Credentials, Pushed, Reference, Registry, push
from serving.images.store.model_store import ModelStore
from tests.rig import leaks
from tests.rig.servers.registry_server import RegistryServer


@pytest.fixture(scope="session")
def shared_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Shared by the session: use a repository of your own."""
    directory = tmp_path_factory.mktemp("registry")
    with leaks.shared(directory):
        server = RegistryServer(directory / "server").start()
    yield server
    server.stop()


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Ten files that make four layers."""
    root = tmp_path / "trained"
    (root / "weights").mkdir(parents=True)
    (root / "tokenizer").mkdir()
    for i in range(3):
        (root / "weights" / f"part-{i}.bin").write_bytes(os.urandom(1_100_000 + i))
    for i in range(6):
        (root / "tokenizer" / f"vocabulary-{i}.json").write_bytes(os.urandom(2_000))
    (root / "slipway.json").write_text('{"framework": "sklearn", "metrics": {"accuracy": 0.9}}')
    return root


@pytest.fixture
def built(trained: Path, store: ModelStore) -> Built:
    return build_image(
        trained, store, repository="slipway.local/default/digits", lineage={"job": "train-digits"}
    )


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    """A client that nobody knows."""
    async with Registry(Credentials.none()) as client:
        yield client


@pytest.fixture
def target(shared_registry: RegistryServer, built: Built) -> Reference:
    """A tag in a repository of this test: no other image has these random bytes."""
    return Reference.parse(f"{shared_registry.host}/test/{built.digest[7:19]}:v1")


@pytest.fixture
async def pushed(registry: Registry, store: ModelStore, built: Built, target: Reference) -> Pushed:
    """The image in the registry."""
    return await push(registry, store, built.digest, target)
