"""SIGKILL before every system call that writes: visible images are complete, and no other files remain.

Each change runs in a fork that is killed at its n-th writing call, for every n until the change completes.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.images.documents import oci
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from tests.objects.models.model_images import built_in, carry
from tests.programs.killed_store import ORIGIN

ROOT = Path(__file__).parents[3]

OWNER = "pod/bystander"


class Forks:
    """The process whose forks change stores."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def killed_at_every_call(
        self, change: str, store_rig: "StoreRig", check_state: Callable[[], None], at_least: int
    ) -> None:
        number = 1
        while self._ends_before_call(number, change, store_rig):
            check_state()
            number += 1
        check_state()
        assert number > at_least, "too few calls were wrapped"

    def _ends_before_call(self, number: int, change: str, store_rig: "StoreRig") -> bool:
        """Make the change in a fork that dies at its n-th call; return False if it completed first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = [number, change, str(store_rig.root.parent), store_rig.built.digest]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in {0, -signal.SIGKILL}
        return status != 0


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    command = [sys.executable, "-m", "tests.programs.killed_store"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Forks(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


class StoreRig:
    """A store with a bystander image, which must stay intact, and an image that the tests change."""

    def __init__(self, root: Path) -> None:
        self.root = root / "store"
        self.out = self._files(root / "out", b"a")
        self.bystander = built_in(self.store, self._files(root / "other", b"b"), compression="zstd")
        self.store.pin(self.bystander.digest, OWNER)
        self.store.set_origin(self.bystander.digest, ORIGIN)
        self.registry = ModelStore(root / "registry")
        self.built = built_in(self.registry, self.out, compression="zstd")
        self.empty = self.listing()

    @property
    def store(self) -> ModelStore:
        return ModelStore(self.root)

    def _files(self, path: Path, small: bytes) -> Path:
        path.mkdir()
        (path / "small").write_bytes(small)
        (path / "weights").write_bytes(b"w" * 1_100_000)
        return path

    def listing(self) -> set[Path]:
        return {path.relative_to(self.root) for path in self.root.rglob("*")}

    def bring(self) -> None:
        carry(self.registry, self.store, self.built.digest, origin=ORIGIN)

    def check(self) -> ModelStore:
        """Open the store as a new process, and check that it has complete images and no other files."""
        for blob in (self.root / "blobs" / "sha256").iterdir():
            assert disk.file_digest(blob) == f"sha256:{blob.name}"
        store = self.store
        assert not list((self.root / "tmp").iterdir())
        assert store.verify(self.bystander.digest, deep=True) == self.bystander.files
        assert (store.pins(self.bystander.digest), store.origin(self.bystander.digest)) == ({OWNER}, ORIGIN)
        assert len(store.referrers(self.bystander.digest)) == 2
        if store.has(self.built.digest):
            assert store.verify(self.built.digest, deep=True) == self.built.files
            assert {oci.digest_of(document) for _, document in store.referrers(self.built.digest)} == {
                self.built.modelpack_digest,
                self.built.lineage_digest,
            }
        else:
            assert self.listing() == self.empty
        return store


@pytest.fixture
def store_rig(tmp_path: Path) -> Iterator[StoreRig]:
    """A store in memory if possible: a kill loses no written bytes, and fsync is cheap."""
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield StoreRig(root)
    disk.remove_tree(root)


def test_capture_killed_at_any_call_leaves_the_image_or_nothing(store_rig: StoreRig, forks: Forks) -> None:
    def check_state() -> None:
        assert store_rig.check().remove(store_rig.built.digest)
        store_rig.check()

    forks.killed_at_every_call("capture", store_rig, check_state, at_least=40)


def test_import_killed_at_any_call_leaves_the_image_or_nothing(store_rig: StoreRig, forks: Forks) -> None:
    def check_state() -> None:
        store = store_rig.check()
        assert not store.has(store_rig.built.digest) or store.origin(store_rig.built.digest) == ORIGIN
        assert store.remove(store_rig.built.digest)

    forks.killed_at_every_call("import", store_rig, check_state, at_least=40)


@pytest.mark.parametrize("operation", ["remove", "evict"])
def test_removal_killed_at_any_call_leaves_the_image_or_nothing(
    operation: str, store_rig: StoreRig, forks: Forks
) -> None:
    store_rig.bring()

    def check_state() -> None:
        if not store_rig.check().has(store_rig.built.digest):
            store_rig.bring()

    forks.killed_at_every_call(operation, store_rig, check_state, at_least=15)


def test_broken_tree_is_replaced_or_missing_when_killed_at_any_call(
    store_rig: StoreRig, forks: Forks
) -> None:
    def break_tree() -> None:
        (store_rig.store.tree(store_rig.built.digest) / "models" / "small").chmod(0o600)

    def check_state() -> None:
        store = store_rig.store
        assert store.pins(store_rig.built.digest) == {"pod/a"}
        if not store.has(store_rig.built.digest) or store.repair(store_rig.built.digest):
            store_rig.bring()
        assert store.verify(store_rig.built.digest, deep=True) == store_rig.built.files
        break_tree()

    store_rig.bring()
    store_rig.store.pin(store_rig.built.digest, "pod/a")
    break_tree()
    forks.killed_at_every_call("import", store_rig, check_state, at_least=40)


def test_image_that_cannot_be_pulled_again_is_kept_when_its_repair_is_killed_at_any_call(
    store_rig: StoreRig, forks: Forks
) -> None:
    carry(store_rig.registry, store_rig.store, store_rig.built.digest)

    def break_tree() -> None:
        (store_rig.store.tree(store_rig.built.digest) / "models" / "small").chmod(0o600)

    def check_state() -> None:
        assert store_rig.store.repair(store_rig.built.digest) is None
        store_rig.check()
        break_tree()

    break_tree()
    forks.killed_at_every_call("repair", store_rig, check_state, at_least=30)


def test_pin_killed_at_any_call_is_complete_or_absent(store_rig: StoreRig, forks: Forks) -> None:
    store_rig.bring()

    def check_state() -> None:
        store = store_rig.check()
        assert store.pins(store_rig.built.digest) <= {"pod/a"}
        assert store.remove(store_rig.built.digest) == (not store.pins(store_rig.built.digest))
        store.unpin(store_rig.built.digest, "pod/a")
        if not store.has(store_rig.built.digest):
            store_rig.bring()

    forks.killed_at_every_call("pin", store_rig, check_state, at_least=5)
