"""Changes a model store in forks, each killed before its n-th writing call.

    python -m tests.programs.killed_store

Each line of standard input is a JSON list: n, the name of a change, the directory of the stores, and the
digest of the image. The line of the answer is the exit status of the fork; a negative one is its signal.
It is small, so that forks are quick: a process that runs tests has hundreds of megabytes to copy.
"""

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from tests.objects.models.model_images import built_in, carry

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
ORIGIN = "registry.example/m"
CHANGES: dict[str, Callable[[Path, str], object]] = {
    "capture": lambda root, _: built_in(ModelStore(root / "store"), root / "out", compression="zstd"),
    "import": lambda root, digest: carry(
        ModelStore(root / "registry"), ModelStore(root / "store"), digest, origin=ORIGIN
    ),
    "remove": lambda root, digest: ModelStore(root / "store").remove(digest),
    "evict": lambda root, _: ModelStore(root / "store").evict(0),
    "pin": lambda root, digest: ModelStore(root / "store").pin(digest, "pod/a"),
    "repair": lambda root, digest: ModelStore(root / "store").repair(digest),
}


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


def killed_before(number: int, change: Callable[[], object]) -> int:
    """Run the change in a fork that dies before its n-th call; return the exit status of the fork."""
    child = os.fork()
    if child == 0:
        count = Countdown(number)
        for name in CALLS:
            setattr(os, name, count.wrap(getattr(os, name)))
        io.open = count.wrap(io.open)
        disk.write_all = count.wrap(disk.write_all)
        status = 1
        try:
            change()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    for line in sys.stdin:
        number, name, root, digest = json.loads(line)
        status = killed_before(number, partial(CHANGES[name], Path(root), digest))
        print(status, flush=True)


if __name__ == "__main__":
    main()
