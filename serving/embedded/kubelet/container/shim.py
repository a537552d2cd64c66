"""The exit recorder: parent of one run of one container, so that the agent may die and come back.

It runs in its own session under `python -I -S` (or forked from a zygote: see `zygote.py`), owns the container's
output (a pipe, written to a bounded log file), and writes the exit status durably. It knows nothing of Pods or the
API, imports the standard library only (and little of it: one runs beside every replica), and must never need the
agent again once started.

In its run directory:
    lock          held (flock) while it lives; who gets it knows that nobody records here
    launch.json   written by the agent: {"nonce", ...}; a recorder with another nonce came too late, and ends
    started.json  {"boot_id", "recorder": [pid, start time], "process": [pid, start time]}; its mtime is the start
    exit.json     {"code", "signal", "oom", "error"}; its mtime is the end. Written once, never changed
Its specification comes as JSON on a socket (it has secrets in it, so it is never a file), which is closed from here
when the run's start is recorded: so the agent hears of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

from serving.embedded.kubelet.container import sandbox
from serving.system import atomic_file, locks, procfs

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

CHUNK = 65536
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Blocked here, where they mean nothing; one that comes for the container before its exec stays pending."""
REMOVE_TRIES = 100
"""A hundredth of a second each: for the kernel to see that a cgroup's last process is gone."""
START_ERROR = 128
"""Exit code where the command could not be started, as containerd's StartError."""


def write_record(directory: str, name: str, content: dict[str, Any], *, synced: bool = False) -> None:
    """Write a JSON file atomically; `synced` as for `atomic_file.replace`."""
    atomic_file.replace(f"{directory}/{name}", json.dumps(content).encode(), mode=0o600, synced=synced)


def _ended(directory: str, content: dict[str, Any]) -> None:
    """Record the end, and see to it that all that is known of the run outlives the machine's power.

    Before the end that was of no use: it speaks of processes, and a disk that is waited for makes a start slow.
    """
    for name in ("launch.json", "started.json"):
        with contextlib.suppress(OSError):
            fd = os.open(f"{directory}/{name}", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    write_record(directory, "exit.json", content, synced=True)


class Log:
    """A file that is rotated to `FILE.1` before it, and the times beside it, would grow past its limit.

    `FILE.times` says when each piece was written; `serving.embedded.apiserver.pods.log_times` has its format.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path, self._limit = path, limit
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        found = os.fstat(self._fd)
        self._size, self._indexed, self._times = found.st_size, 0, -1
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._times = os.open(self._path + ".times", flags, 0o600)
        self._index(found.st_ino, 0)

    def _index(self, *numbers: int) -> None:
        with contextlib.suppress(OSError):
            self._indexed += os.write(self._times, b"".join(n.to_bytes(8, "little") for n in numbers))

    def write(self, data: bytes) -> None:
        """Append; a full disk loses output rather than the replica."""
        if self._size and self._size + self._indexed + len(data) > self._limit:
            os.close(self._fd)
            os.replace(self._path, self._path + ".1")  # noqa: PTH105 as above
            with contextlib.suppress(OSError):
                os.close(self._times)
                os.replace(self._path + ".times", self._path + ".1.times")  # noqa: PTH105 as above
            self._open()
        self._index(self._size, time.clock_gettime_ns(time.CLOCK_REALTIME))
        with contextlib.suppress(OSError):
            self._size += os.write(self._fd, data)


def oom_kills(path: str | None) -> int:
    """Return the cgroup's `oom_kill` counter (memory.events, or memory.oom_control in v1); 0 without one."""
    if not path:
        return 0
    try:
        with open(path) as file:  # noqa: PTH123 as above
            for line in file:
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    except OSError:
        return 0
    return 0


def _execute(spec: dict[str, Any]) -> NoReturn:
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 what it is for


class Cell:
    """The container's process before it is told what to be, and this process's ends of its pipes.

    It can be forked before anybody knows what for, and never runs unrecorded: it waits for its specification, which it
    gets when its identity has been recorded. After the fork `pid` is 0 in the container's process; there, what was
    given as `become` has returned by then, and `spec` is what it was told.
    """

    def __init__(self, become: Callable[[dict[str, Any]], None]) -> None:
        """Fork; `become` is called in the container when all is ready: what it raises is the run's start error."""
        self.output, output = os.pipe()
        self.problem, problem = os.pipe()
        told, self.tell = os.pipe()
        self.wakeup, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.spec: dict[str, Any] = {}
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.tell)
            self._wait(told, output, problem, become)
            return
        for fd in (output, problem, told):
            os.close(fd)

    def _wait(self, told: int, output: int, problem: int, become: Callable[[dict[str, Any]], None]) -> None:
        """Enter the container and `become` its program, or say on `problem` why not."""
        devnull = os.open(os.devnull, os.O_RDWR)
        for source, target in ((devnull, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        raw = b"".join(iter(lambda: os.read(told, CHUNK), b""))
        if not raw:
            os._exit(0)
        self.spec = json.loads(raw)
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            sandbox.enter(self.spec)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            become(self.spec)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            os.write(problem, f"{self.spec['argv'][0]}: {error.strerror or error}{where}".encode())
            os._exit(START_ERROR)
        except Exception as error:  # noqa: BLE001 the child must end here whatever happens, and say why
            os.write(problem, f"{type(error).__name__}: {error}".encode())
            os._exit(START_ERROR)


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, by /proc."""
    parents: dict[int, int] = {}
    for pid in procfs.processes():
        if stat := procfs.stat(pid):
            parents[pid] = int(stat[procfs.PARENT])
    found, frontier = [], [root]
    while frontier:
        parent = frontier.pop()
        children = [pid for pid, of in parents.items() if of == parent]
        found += children
        frontier += children
    return found


def kill_all(kill_file: str | None, groups: list[str]) -> bool:
    """SIGKILL everything of the container that still lives; returns whether something did.

    What a process left behind (setsid, double fork) is in the cgroup, and where there is none it has become
    this process's child, which is a subreaper.
    """
    pids = set(descendants(os.getpid()))
    for group in groups:
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs") as file:  # noqa: PTH123 as above
            pids |= {int(line) for line in file}
    pids.discard(os.getpid())
    if not pids:
        return False
    if kill_file:
        with contextlib.suppress(OSError), open(kill_file, "w") as file:  # noqa: PTH123 as above
            file.write("1")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def _reap(main: int) -> int | None:
    """Collect ended children; returns the main one's wait status once it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == main:
                status = ended
    return status


def _attend(main: int, output: int, wakeup: int, log: Log) -> int:
    """Copy output to the log until the main process ends; returns its wait status."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            data = os.read(fd, CHUNK)
            if fd == wakeup:
                status = _reap(main)
                if status is not None:
                    return status
            elif data:
                log.write(data)
            else:
                poll.unregister(output)


def _finish(spec: dict[str, Any], output: int, log: Log) -> None:
    """Kill what is left, then write what it had still said."""
    while kill_all(spec["kill"], spec["cgroups"]):
        _reap(-1)
        select.select([], [], [], 0.005)
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(output, CHUNK):
            log.write(data)


def _record(spec: dict[str, Any], cell: Cell, agent: int) -> None:
    directory = spec["directory"]
    log = Log(spec["log"], spec["log_bytes"])
    before = oom_kills(spec["oom"])
    write_record(directory, "started.json", {
        "boot_id": procfs.boot_id(), "recorder": [os.getpid(), procfs.start_time(os.getpid())],
        "process": [cell.pid, procfs.start_time(cell.pid)],
    })  # fmt: skip
    os.close(agent)
    if spec["stamp"]:
        spec["env"][spec["stamp"]] = f"{time.clock_gettime(time.CLOCK_REALTIME):.6f}"
    with contextlib.suppress(BrokenPipeError), open(cell.tell, "wb") as pipe:  # noqa: PTH123 a descriptor
        pipe.write(json.dumps(spec).encode())
    problem = os.read(cell.problem, 4096).decode(errors="replace")  # ends when it has become its program
    status = _attend(cell.pid, cell.output, cell.wakeup, log)
    _finish(spec, cell.output, log)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    _ended(directory, {
        "code": 128 + number if number else os.WEXITSTATUS(status), "signal": number,
        "oom": oom_kills(spec["oom"]) > before, "error": problem,
    })  # fmt: skip
    if not spec["join"]:
        _remove(spec["cgroups"])


def _remove(groups: list[str]) -> None:
    """Remove the cgroups that were made for this process's container before there was one; the kernel may lag behind."""
    for group in groups:
        for _ in range(REMOVE_TRIES):
            with contextlib.suppress(OSError):
                os.rmdir(group)  # noqa: PTH106 as above
            if not os.path.exists(group):  # noqa: PTH110 as above
                break
            select.select([], [], [], 0.01)


def main() -> None:
    """Run one container to its end, whose program is executed."""
    block_stopping()
    cell = Cell(_execute)
    spec = json.loads(sys.stdin.buffer.read())
    agent = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    record(spec, cell, agent)


def block_stopping() -> None:
    """Let signals that ask to stop wait, for good here, and until its program begins in the container."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def record(spec: dict[str, Any], cell: Cell, agent: int) -> None:
    """Run one container to its end. Ends at once where another recorder, or a verdict, was first.

    Args:
        spec: what `launch.start` sends.
        cell: the process that becomes the container.
        agent: the descriptor that is closed when the start is recorded, or before.
    """
    if locks.try_lock(f"{spec['directory']}/lock") is None:
        return
    try:
        with open(f"{spec['directory']}/launch.json") as file:  # noqa: PTH123 as above
            if json.load(file)["nonce"] != spec["nonce"]:
                return
    except FileNotFoundError:
        return
    os.chdir("/")
    sandbox.become_subreaper()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 as above
        file.write("-900")
    _record(spec, cell, agent)


def run_inside() -> None:
    """Run a command in a container (exec probes, preStop); becomes that command."""
    spec = json.loads(sys.stdin.buffer.read())
    sandbox.join(spec)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 what it is for
