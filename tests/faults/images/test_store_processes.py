"""Several processes at one store, one of them killed: pinned images stay complete, and nothing is left over."""

import subprocess
import sys
from pathlib import Path

from serving.images.store.model_store import ModelStore
from tests.objects.model_images import write_trained

ROOT = Path(__file__).parents[3]
PROGRAM = """
import random, sys
from pathlib import Path
from serving import errors
from serving.images.capture.build import capture
from serving.images.store.model_store import ModelStore

store, outs, me = Path(sys.argv[1]), [Path(name) for name in sys.argv[3:]], sys.argv[2]
dice = random.Random(me)
for _ in range(12):
    print("next", flush=True)
    mine = ModelStore(store)
    built = capture(dice.choice(outs), mine, repository="r", lineage={"by": me}, compression=dice.choice(["none", "zstd"]))
    try:
        mine.pin(built.digest, me)
    except errors.Permanent as error:
        assert error.reason == "ImageMissing", error
        continue
    mine.set_origin(built.digest, "registry.example/m")
    mine.evict(0)
    assert mine.verify(built.digest, deep=True) == built.files
    mine.unpin(built.digest, me)
    dice.choice([lambda: mine.remove(built.digest), lambda: mine.evict(0), lambda: None])()
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
        assert worker.wait(100) == (-9 if worker is victim else 0)
    final_store = ModelStore(store)
    for owner in final_store.owners():
        assert owner == str(workers.index(victim)), "only the killed one left a pin"
        for digest in final_store.images():
            final_store.unpin(digest, owner)
    for digest in final_store.images():
        final_store.verify(digest, deep=True)
        assert final_store.remove(digest)
    files = [path for path in ModelStore(store).root.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["lock"]
