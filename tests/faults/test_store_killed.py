"""SIGKILL at random points of a capture: what is visible is whole, and the next capture finishes the job."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from serving.images import disk
from serving.images.build import capture
from serving.images.store import ModelStore

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys; from pathlib import Path
from serving.images.build import capture; from serving.images.store import ModelStore
store = ModelStore(Path(sys.argv[2]))
print("go", flush=True)
capture(Path(sys.argv[1]), store, repository="r", lineage={})
"""
KILLS = 20


def test_killed_at_random_points_the_store_stays_whole_and_converges(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for i in range(30):
        (out / f"small-{i}").write_bytes(os.urandom(20_000))
    (out / "weights").write_bytes(os.urandom(8_000_000))
    reference = ModelStore(tmp_path / "reference")
    started = time.monotonic()
    built = capture(out, reference, repository="r", lineage={})
    took = time.monotonic() - started
    dice = random.Random(20261121)
    root = tmp_path / "store"
    for _ in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, out, root], cwd=ROOT, stdout=subprocess.PIPE
        )  # fmt: skip
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"go\n"
        time.sleep(dice.uniform(0, took * 1.2))  # the point of the kill is the experiment, nothing is awaited
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for blob in (root / "blobs" / "sha256").iterdir():
            assert disk.file_digest(blob) == f"sha256:{blob.name}"
        survivor = ModelStore(root)
        assert not list((root / "tmp").iterdir())
        if survivor.has(built.digest):
            assert survivor.verify(built.digest, deep=True) == built.files
            disk.remove_tree(survivor.tree(built.digest))
    assert capture(out, ModelStore(root), repository="r", lineage={}).digest == built.digest
    assert ModelStore(root).verify(built.digest, deep=True) == built.files
