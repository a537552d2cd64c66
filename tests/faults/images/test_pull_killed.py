"""SIGKILL of a pulling process at random moments: visible images are complete, and the next pull finishes."""

import asyncio
import os
import random
import time
from pathlib import Path

from serving.images.building.model_image import build_image
from serving.images.registry import Credentials, Reference, Registry, push
from serving.images.store.model_store import ModelStore
from tests.rig.servers.killable import Killable
from tests.rig.servers.registry_server import RegistryServer

PROGRAM = """
from serving.images.registry import Credentials, Reference, Registry, pull
from serving.images.store.model_store import ModelStore

async def main(root, image):
    async with Registry(Credentials.none()) as registry:
        await pull(registry, ModelStore(Path(root)), Reference.parse(image))
"""
KILLS = 6


def test_store_stays_consistent_when_pulls_are_killed_at_random_moments(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for i in range(20):
        (out / f"small-{i}").write_bytes(os.urandom(20_000))
    for i in range(3):
        (out / f"weights-{i}").write_bytes(os.urandom(4_000_000))
    source = ModelStore(tmp_path / "source")
    built = build_image(out, source, repository="r", lineage={})
    server = RegistryServer(tmp_path / "server").start()
    target = Reference.parse(f"{server.host}/models/a")
    image = str(target.at(built.digest))

    async def send() -> None:
        async with Registry(Credentials.none()) as registry:
            await push(registry, source, built.digest, target)

    puller = Killable(PROGRAM)
    try:
        asyncio.run(send())
        began = time.monotonic()
        puller.start(tmp_path / "first", image)
        assert puller.wait() == 0
        took = time.monotonic() - began
        dice = random.Random(20261121)
        root = tmp_path / "store"
        for _ in range(KILLS):
            puller.start(root, image)
            time.sleep(dice.uniform(0, took))  # the moment of the kill is random
            puller.kill()
            survivor = ModelStore(root)
            assert not [path for path in (root / "tmp").iterdir() if path.is_dir()]
            if survivor.has(built.digest):
                assert survivor.verify(built.digest, deep=True) == built.files
                assert survivor.remove(built.digest)
        puller.start(root, image)
        assert puller.wait() == 0
        assert ModelStore(root).verify(built.digest, deep=True) == built.files
    finally:
        puller.close()
        server.stop()
