"""The zygote: a process that has imported a runtime once, and forks itself for every replica of it.

What it costs to start a runtime is its imports. This process pays them before anybody asks; a child of it is
ready to load a model within milliseconds. One per runtime and namespace: children share the layout of their
memory and the hash seed with it. It never sees what a child is given: the child reads its own specification.

A child is the exit recorder of its run, exactly as an executed one (`container/shim.py`), and the container's process is
a child of that; the death of the zygote means nothing to either. To fork 120 MB takes 7 ms, and both do it: so there
is always one such pair, a spare, which waits for the next connection; it dies with the zygote until it has one.

The zygote must stay single-threaded, hold no descriptor but its socket, configure nothing (no logging, no signal
handlers), and know nothing of Pods or the API.

Run as: python -P -m serving.embedded.kubelet.zygote.process DIRECTORY NAME MODULE [PLACE ...]; a spare has a cgroup in each PLACE.
In DIRECTORY:
    NAME.lock  held (flock) while it lives: a second one ends at once
    NAME.json  who it is, as `processes.write_identity` has it
    NAME.sock  ready when it listens. A connection is one fork: the answer is the recorder's pidfd (SCM_RIGHTS) with
               {"inherited": bytes, the memory that it shares with the zygote, "groups": cgroups it is in}; then it reads a specification, and closes
               the connection when the start is recorded
"""

import ctypes
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from serving.embedded.kubelet.container import sandbox, shim
from serving.system import locks, processes

BACKLOG = 256
READ_SECONDS = 10.0
"""Longest wait of a forked child for its specification; the agent sends it within milliseconds, or never."""
REST_SECONDS = 0.2
"""Between a fork that was wanted and the next spare, unless another is wanted: what was forked has the processors then."""
_ARGUMENTS = (48 - 3, 49 - 3)
"""proc(5): arg_start and arg_end are fields 48 and 49 of stat; the first that is kept here is the third."""


def main() -> int:
    """Fork until killed. Returns in the forked processes only, with the container's exit status."""
    directory, name, module = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    lock = locks.try_lock(directory / f"{name}.lock")
    if lock is None:
        return 0
    processes.write_identity(directory / f"{name}.json", processes.own_identity())
    runtime = import_runtime(module)
    listener = _listen(directory, name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # recorders are nobody's to wait for
    taken = _forked(listener, os.getpid())
    os.close(lock)
    shim.block_stopping()
    cell = shim.Cell(_become)
    if cell.pid:
        _record(listener, taken, cell, sandbox.house(cell.pid, sys.argv[4:]))
        return 0
    listener.detach()  # its descriptor is closed by now, and its number another's
    sys.argv = [str(runtime.__file__), *cell.spec["argv"][3:]]
    sys.modules["__main__"] = runtime
    return int(runtime.main())


def import_runtime(module: str) -> Any:
    """Import the runtime and all that it needs; what it takes is not garbage, and is never looked at again."""
    gc.disable()
    runtime = importlib.import_module(module)
    for needed in runtime.PRELOAD:
        importlib.import_module(needed)
    gc.collect()
    gc.freeze()
    if threads() != 1:
        sys.exit(f"importing {module} has started {threads() - 1} threads: it cannot be forked")
    return runtime


def threads() -> int:
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 names only


def _listen(directory: Path, name: str) -> socket.socket:
    path = directory / f"{name}.sock"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o077)
    listener.bind(f"/proc/self/fd/{place}/{name}.sock")  # the path may be longer than an address can be
    os.umask(before)
    os.close(place)
    listener.listen(BACKLOG)
    return listener


def _forked(listener: socket.socket, zygote: int) -> int:
    """Fork a spare whenever there is none; returns in the spares, with the descriptor on which each says that it is taken."""
    while True:
        if threads() != 1:
            sys.exit("has more than one thread: it cannot be forked")
        is_taken, taken = os.pipe()
        try:
            if os.fork() == 0:
                os.close(is_taken)
                os.setsid()
                sandbox.die_with(zygote)
                return taken
        except OSError as error:  # no memory, or too many processes: who asks is not answered
            print(f"fork: {error}", file=sys.stderr, flush=True)  # noqa: T201 its log
        os.close(taken)
        os.read(is_taken, 1)  # ends too where the spare has died
        os.close(is_taken)
        select.select([listener], [], [], REST_SECONDS)


def _record(listener: socket.socket, taken: int, cell: shim.Cell, groups: list[str]) -> None:
    """Wait to be wanted, say who this process is, and record the run that it is given."""
    connection = listener.accept()[0]
    listener.close()
    sandbox.die_with(None)
    os.write(taken, b"1")
    os.close(taken)
    connection.settimeout(READ_SECONDS)
    try:
        told = json.dumps({"inherited": resident(), "groups": groups}).encode()
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(connection, [told], [handle])
        os.close(handle)
        raw = b"".join(iter(lambda: connection.recv(65536), b""))
        spec: dict[str, Any] = json.loads(raw)
    except (OSError, ValueError):
        return  # nobody wants it any more
    shim.record(spec, cell, connection.detach())


def resident() -> int:
    """Return the bytes of this process's memory that the kernel cannot take back: not those of mapped files."""
    found = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            found += int(line.split()[1]) * 1024
    return found


def _become(spec: dict[str, Any]) -> None:
    """Make the forked process what a new one would be: nothing of where it came from is left but its imports."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sandbox.be_inspectable()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as every Python has it
    os.environ.clear()
    os.environ.update(spec["env"])
    _rename(spec["argv"])
    sys.orig_argv = list(spec["argv"])
    sys.path[:] = ["", *(path for path in sys.path if os.path.exists(path))]  # noqa: PTH110 "" as `python -m` has it
    importlib.invalidate_caches()
    random.seed()
    if multiprocessing := sys.modules.get("multiprocessing.process"):
        multiprocessing.current_process().authkey = os.urandom(32)
    gc.enable()


def _rename(argv: list[str]) -> None:
    """Let `ps` show the container's command; as much of it as there is room for."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(stat[index]) for index in _ARGUMENTS)
    room = end - start
    text = b"\0".join(word.encode() for word in argv)[: room - 1]
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


if __name__ == "__main__":
    sys.exit(main())
