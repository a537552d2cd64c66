"""SIGKILL before every system call that writes: visible images are complete, and no other files remain.

Each change runs in a fork that is killed at its n-th writing call, for every n until the change completes.
"""

import io
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.images.documents import oci
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from tests.objects.model_images import built_in, carry

CALLS = (
    "open",
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "chmod",
    "fchmod",
    "fsync",
    "utime",
    "write",
    "pwrite",
    "posix_fallocate",
)
OPEN, FILE = os.open, io.open
OWNER, ORIGIN = "pod/bystander", "registry.example/m"


def only_reads(call: Callable, args: tuple) -> bool:
    return (call is OPEN and not args[1] & os.O_CREAT) or (call is FILE and "r" in args[1])


class Countdown:
    """Kills this process before the n-th call of the wrapped functions."""

    def __init__(self, calls: int) -> None:
        self.remaining = calls

    def wrap(self, call: Callable) -> Callable:
        def counted_call(*args, **kwargs):
            if not only_reads(call, args):
                self.remaining -= 1
            if self.remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted_call


def ends_before_call(number: int, act: Callable[[], object]) -> bool:
    """Run `act` in a fork that dies at its n-th call; return False if it completed first."""
    child = os.fork()
    if child == 0:
        count = Countdown(number)
        for name in CALLS:
            setattr(os, name, count.wrap(getattr(os, name)))
        io.open = count.wrap(io.open)
        disk.write_all = count.wrap(disk.write_all)
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def killed_at_every_call(act: Callable[[], object], check_state: Callable[[], None], at_least: int) -> None:
    number = 1
    while ends_before_call(number, act):
        check_state()
        number += 1
    check_state()
    assert number > at_least, "too few calls were wrapped"


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
                self.built.modelpack,
                self.built.lineage,
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


def test_capture_killed_at_any_call_leaves_the_image_or_nothing(store_rig: StoreRig) -> None:
    def check_state() -> None:
        assert store_rig.check().remove(store_rig.built.digest)
        store_rig.check()

    killed_at_every_call(
        lambda: built_in(store_rig.store, store_rig.out, compression="zstd"), check_state, at_least=40
    )


def test_import_killed_at_any_call_leaves_the_image_or_nothing(store_rig: StoreRig) -> None:
    def check_state() -> None:
        store = store_rig.check()
        assert not store.has(store_rig.built.digest) or store.origin(store_rig.built.digest) == ORIGIN
        assert store.remove(store_rig.built.digest)

    killed_at_every_call(store_rig.bring, check_state, at_least=40)


@pytest.mark.parametrize("operation", ["remove", "evict"])
def test_removal_killed_at_any_call_leaves_the_image_or_nothing(operation: str, store_rig: StoreRig) -> None:
    store_rig.bring()

    def check_state() -> None:
        if not store_rig.check().has(store_rig.built.digest):
            store_rig.bring()

    act = {
        "remove": lambda: store_rig.store.remove(store_rig.built.digest),
        "evict": lambda: store_rig.store.evict(0),
    }[operation]
    killed_at_every_call(act, check_state, at_least=15)


def test_broken_tree_is_replaced_or_missing_when_killed_at_any_call(store_rig: StoreRig) -> None:
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
    killed_at_every_call(store_rig.bring, check_state, at_least=40)


def test_pin_killed_at_any_call_is_complete_or_absent(store_rig: StoreRig) -> None:
    store_rig.bring()

    def check_state() -> None:
        store = store_rig.check()
        assert store.pins(store_rig.built.digest) <= {"pod/a"}
        assert store.remove(store_rig.built.digest) == (not store.pins(store_rig.built.digest))
        store.unpin(store_rig.built.digest, "pod/a")
        if not store.has(store_rig.built.digest):
            store_rig.bring()

    killed_at_every_call(
        lambda: store_rig.store.pin(store_rig.built.digest, "pod/a"), check_state, at_least=5
    )
