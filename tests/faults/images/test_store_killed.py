"""SIGKILL before every system call of a change that leaves a trace: what is visible is whole, and nothing is left over.

Each change runs in a fork whose n-th such call kills it, for every n until it comes to its end.
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
    """Kills this process before the n-th call of what was wrapped."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def wrap(self, call: Callable) -> Callable:
        def counted(*args, **kwargs):
            if not only_reads(call, args):
                self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted


def ends_before_call(number: int, act: Callable[[], object]) -> bool:
    """Run `act` in a fork that dies at its n-th call; False where it came to its end first."""
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


def killed_at_every_call(act: Callable[[], object], after: Callable[[], None], at_least: int) -> None:
    number = 1
    while ends_before_call(number, act):
        after()
        number += 1
    after()
    assert number > at_least, "nothing was wrapped"


class World:
    """A store with one image that must come to no harm, and one that things happen to; they share a blob."""

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
        """Open the store as the next process does; everything that it has is whole, and it has nothing else."""
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
def world(tmp_path: Path) -> Iterator[World]:
    """In memory where it can be: a kill loses nothing that was written, and hundreds of fsyncs cost nothing there."""
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield World(root)
    disk.remove_tree(root)


def test_a_capture_killed_at_any_call_leaves_the_image_or_nothing(world: World) -> None:
    def after() -> None:
        assert world.check().remove(world.built.digest)
        world.check()

    killed_at_every_call(lambda: built_in(world.store, world.out, compression="zstd"), after, at_least=40)


def test_an_import_killed_at_any_call_leaves_the_image_or_nothing(world: World) -> None:
    def after() -> None:
        store = world.check()
        assert not store.has(world.built.digest) or store.origin(world.built.digest) == ORIGIN
        assert store.remove(world.built.digest)

    killed_at_every_call(world.bring, after, at_least=40)


@pytest.mark.parametrize("how", ["remove", "evict"])
def test_a_removal_killed_at_any_call_leaves_the_image_or_nothing(how: str, world: World) -> None:
    world.bring()

    def after() -> None:
        if not world.check().has(world.built.digest):
            world.bring()

    act = {"remove": lambda: world.store.remove(world.built.digest), "evict": lambda: world.store.evict(0)}[
        how
    ]
    killed_at_every_call(act, after, at_least=15)


def test_a_broken_tree_is_replaced_whole_or_missing_at_any_call(world: World) -> None:
    def break_it() -> None:
        (world.store.tree(world.built.digest) / "models" / "small").chmod(0o600)

    def after() -> None:
        store = world.store
        assert store.pins(world.built.digest) == {"pod/a"}
        if not store.has(world.built.digest) or store.repair(world.built.digest):
            world.bring()
        assert store.verify(world.built.digest, deep=True) == world.built.files
        break_it()

    world.bring()
    world.store.pin(world.built.digest, "pod/a")
    break_it()
    killed_at_every_call(world.bring, after, at_least=40)


def test_a_pin_killed_at_any_call_is_there_or_not(world: World) -> None:
    world.bring()

    def after() -> None:
        store = world.check()
        assert store.pins(world.built.digest) <= {"pod/a"}
        assert store.remove(world.built.digest) == (not store.pins(world.built.digest))
        store.unpin(world.built.digest, "pod/a")
        if not store.has(world.built.digest):
            world.bring()

    killed_at_every_call(lambda: world.store.pin(world.built.digest, "pod/a"), after, at_least=5)
