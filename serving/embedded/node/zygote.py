"""The zygote: a process that has imported a runtime once, and forks itself for every replica of it.

What it costs to start a runtime is its imports. This process pays them before anybody asks; a child of it is
ready to load a model within milliseconds. One per runtime and namespace: children share the layout of their
memory and the hash seed with it. It never sees what a child is given: the child reads its own specification.

A child is the exit recorder of its run, exactly as an executed one (`recorder.py`), and the container's process is
a child of that; the death of the zygote means nothing to either. It must stay single-threaded, hold no
descriptor but its socket, configure nothing (no logging, no signal handlers), and know nothing of Pods or the API.

Run as: python -P -m serving.embedded.node.zygote DIRECTORY NAME MODULE
In DIRECTORY:
    NAME.lock  held (flock) while it lives: a second one ends at once
    NAME.json  who it is, as `identity.write` has it
    NAME.sock  ready when it listens. A connection is one fork: the answer is the recorder's pidfd (SCM_RIGHTS) with
               {"inherited": bytes}, the memory that it shares with the zygote; then it reads a specification
"""

import ctypes
import fcntl
import gc
import importlib
import json
import os
import random
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from serving.embedded import identity
from serving.embedded.node import recorder, sandbox

BACKLOG = 256
READ_SECONDS = 10.0
"""Longest wait of a forked child for its specification; the agent sends it within milliseconds, or never."""
_ARGUMENTS = (48 - 3, 49 - 3)
"""proc(5): arg_start and arg_end are fields 48 and 49 of stat; the first that is kept here is the third."""


def main() -> int:
    """Fork until killed. Returns in the forked processes only, with the container's exit status."""
    directory, name, module = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.umask(0o077)
    lock = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    identity.write(directory / f"{name}.json", identity.own())
    runtime = _import(module)
    listener = _listen(directory, name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # recorders are nobody's to wait for
    connection = _forked(listener)
    listener.close()
    os.close(lock)
    spec = _specification(connection)
    if spec is None or not recorder.record(spec, _become, connection.detach()):
        return 0
    sys.argv = [str(runtime.__file__), *spec["argv"][3:]]
    sys.modules["__main__"] = runtime
    return int(runtime.main())


def _import(module: str) -> Any:
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
    listener.bind(f"/proc/self/fd/{place}/{name}.sock")  # the path may be longer than an address can be
    os.close(place)
    listener.listen(BACKLOG)
    return listener


def _forked(listener: socket.socket) -> socket.socket:
    """Fork for every connection; returns in the children, each with its own."""
    while True:
        connection = listener.accept()[0]
        if threads() != 1:
            sys.exit("has more than one thread: it cannot be forked")
        try:
            if os.fork() == 0:
                return connection
        except OSError as error:  # no memory, or too many processes: who asked sees the connection end
            print(f"fork: {error}", file=sys.stderr, flush=True)  # noqa: T201 its log
        connection.close()


def _specification(connection: socket.socket) -> dict[str, Any] | None:
    """Say who this process is, and read what it is to run; None where nobody wants it any more."""
    os.setsid()
    connection.settimeout(READ_SECONDS)
    try:
        told = json.dumps({"inherited": resident()}).encode()
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(connection, [told], [handle])
        os.close(handle)
        raw = b"".join(iter(lambda: connection.recv(65536), b""))
        spec: dict[str, Any] = json.loads(raw)
    except (OSError, ValueError):
        return None
    return spec


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
