"""Several processes use a store and one is killed: pinned images stay complete, and no other files remain."""

import subprocess
import sys
from pathlib import Path

from serving.images.store.model_store import ModelStore
from tests.objects.models.model_images import write_trained

ROOT = Path(__file__).parents[3]
PROGRAM = """
import random, sys
from pathlib import Path
from serving import errors
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore

root, outs, owner = Path(sys.argv[1]), [Path(name) for name in sys.argv[3:]], sys.argv[2]
dice = random.Random(owner)
for _ in range(12):
    print("next", flush=True)
    store = ModelStore(root)
    out, compression = dice.choice(outs), dice.choice(["none", "zstd"])
    built = build_image(out, store, repository="r", lineage={"by": owner}, compression=compression)
    try:
        store.pin(built.digest, owner)
    except errors.Permanent as error:
        assert error.reason == "ImageMissing", error
        continue
    store.set_origin(built.digest, "registry.example/m")
    store.evict(0)
    assert store.verify(built.digest, deep=True) == built.files
    store.unpin(built.digest, owner)
    dice.choice([lambda: store.remove(built.digest), lambda: store.evict(0), lambda: None])()
"""


def test_processes_share_a_store_without_conflict_or_leftovers(tmp_path: Path) -> None:
    outs = [write_trained(tmp_path / f"out-{seed}", seed=seed, big=1_100_000) for seed in range(2)]
    store = tmp_path / "store"
    ModelStore(store)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, store, str(n), *outs], cwd=ROOT, stdout=subprocess.PIPE
        )
        for n in range(4)
    ]
    victim = workers[2]
    assert victim.stdout is not None
    for _ in range(5):
        assert victim.stdout.readline() == b"next\n"
    victim.kill()
    for worker in workers:
        with worker:
            assert worker.wait(100) == (-9 if worker is victim else 0)
    final_store = ModelStore(store)
    for owner in final_store.owners():
        assert owner == str(workers.index(victim)), "a process that was not killed left a pin"
        for digest in final_store.images():
            final_store.unpin(digest, owner)
    for digest in final_store.images():
        final_store.verify(digest, deep=True)
        assert final_store.remove(digest)
    files = [path for path in ModelStore(store).root.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["lock"]
