"""SIGKILL of a pushing process at random moments: a tag never names an incomplete image."""

import asyncio
import os
import random
import time
from pathlib import Path

from serving.images.building.model_image import build_image
from serving.images.registry import Credentials, Reference, Registry, manifests, pull
from serving.images.store.model_store import ModelStore
from tests.rig.servers.killable import Killable
from tests.rig.servers.registry_server import RegistryServer

PROGRAM = """
from serving.images.registry import Credentials, Reference, Registry, push
from serving.images.store.model_store import ModelStore

async def main(root, digest, target):
    async with Registry(Credentials.none()) as registry:
        await push(registry, ModelStore(Path(root)), digest, Reference.parse(target))
"""
KILLS = 6


async def pulled(target: Reference, store: ModelStore) -> str | None:
    """Return the digest of the tag after a pull of its image, or None without a tag."""
    async with Registry(Credentials.none()) as registry:
        if await manifests.find(registry, target) is None:
            return None
        return await pull(registry, store, target)


def test_no_tag_names_a_partial_image_when_pushes_are_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for i in range(4):
        (out / f"weights-{i}").write_bytes(os.urandom(2_000_000))
    source = tmp_path / "source"
    built = build_image(out, ModelStore(source), repository="r", lineage={})
    server = RegistryServer(tmp_path / "server").start()
    pusher = Killable(PROGRAM)
    try:
        began = time.monotonic()
        pusher.start(source, built.digest, f"{server.host}/first/a:v1")
        assert pusher.wait() == 0
        took = time.monotonic() - began
        dice = random.Random(20261121)
        for i in range(KILLS):
            target = Reference.parse(f"{server.host}/killed/a{i}:v1")
            pusher.start(source, built.digest, target)
            time.sleep(dice.uniform(0, took))  # the moment of the kill is random
            pusher.kill()
            store = ModelStore(tmp_path / f"store-{i}")
            digest = asyncio.run(pulled(target, store))
            assert digest is None or store.verify(digest, deep=True) == built.files
        retried = Reference.parse(f"{server.host}/killed/a0:v1")
        pusher.start(source, built.digest, retried)
        assert pusher.wait() == 0
        assert asyncio.run(pulled(retried, ModelStore(tmp_path / "last"))) == built.digest
    finally:
        pusher.close()
        server.stop()
