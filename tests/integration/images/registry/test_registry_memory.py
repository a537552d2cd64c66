"""Memory of a push and a pull does not grow with the model."""

import subprocess
import sys
from pathlib import Path

from serving.settings import DEFAULTS
from tests.rig.servers.registry_server import RegistryServer

ROOT = Path(__file__).parents[4]
SIZE = 40 * 1024 * 1024
PROGRAM = f"""
import asyncio, hashlib, resource, sys
from serving.images.documents.image import Blob
from serving.images.registry import Credentials, Reference, Registry, blobs, transfers, uploads

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def data(i):
    return (bytes([i]) * 1_048_576 for _ in range({SIZE} // 1_048_576))

def digest(i):
    sha256 = hashlib.sha256()
    for part in data(i):
        sha256.update(part)
    return "sha256:" + sha256.hexdigest()

async def main():
    target = Reference.parse(sys.argv[1])
    blobs_ = {{i: Blob(digest(i), {SIZE}) for i in range(5)}}
    async with Registry(Credentials.none()) as registry:
        before = peak()
        async def send(i):
            await uploads.upload(registry, target, blobs_[i], lambda: data(i))
        await transfers.in_parallel(4, send, blobs_)
        pushed = peak()
        async def fetch(i):
            assert sum([len(piece) async for piece in blobs.chunks(registry, target, blobs_[i])]) == {SIZE}
        await transfers.in_parallel(4, fetch, blobs_)
        print(pushed - before, peak() - pushed)
asyncio.run(main())
"""


def test_memory_is_bounded_by_the_chunks_in_flight(shared_registry: RegistryServer) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"{shared_registry.host}/memory/a"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    pushed, pulled = (int(text) for text in completed.stdout.split())
    chunks = DEFAULTS.registry.parallel * DEFAULTS.registry.chunk_bytes
    assert pushed < chunks + 24 * 1024 * 1024
    assert pulled < 16 * 1024 * 1024
