"""The container shim: the parent of one run of a container, so that the agent may restart.

Like containerd-shim and conmon, it runs in its own session under `python -I -S`, or is forked from a zygote
(`zygote/process.py`). It owns the container's output (a pipe, written to a bounded log file) and records the
exit status durably. It does not know Pods or the API, imports little of the standard library (one runs
beside every replica), and does not need the agent after its start.

In its run directory:
    lock          held (flock) while it lives; its holder knows that no shim writes here
    launch.json   written by the agent: {"nonce", ...}; a shim with another nonce is stale, and ends
    started.json  {"boot_id", "recorder": [pid, start time] of the shim, "process": [pid, start time],
                  "cgroups": paths}
    exit.json     {"code", "signal", "oom", "error"}; written once, never changed
The mtimes of the last two are the times of the start and of the end. The specification has secrets, so it is
JSON on a socket and never a file. The shim closes the socket when the start is recorded, which the agent
awaits.

Where the agent runs as root, the shim is the first process of the container's PID namespace, so that the
kernel kills the container's processes with the shim. Process ids in records are those of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import sys

from serving.embedded.kubelet.container import sandbox
from serving.embedded.kubelet.container.container_log import ContainerLog
from serving.embedded.kubelet.container.port_binding import PortBinder
from serving.system import procfs
from serving.system.files import atomic_file, locks
from serving.system.isolation import bind_notification, namespaces
from serving.system.network import descriptors

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

CHUNK_BYTES = 65536
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Blocked in the shim; one that is sent to the container before its exec stays pending."""
REMOVE_TRIES = 100
"""Attempts, `REMOVE_PAUSE_SECONDS` apart: the kernel may notice the end of a cgroup's last process late."""
REMOVE_PAUSE_SECONDS = 0.01
KILL_SECONDS = 0.005
"""Between checks for processes that a SIGKILL has not ended yet."""
FULL_DISK_SECONDS = 1.0
"""Between attempts to record the end on a full disk."""
START_ERROR = 128
"""Exit code of a command that could not be started, as containerd's StartError."""
OOM_SCORE = "-900"
"""oom_score_adj of the shim: the kernel kills almost any other process first (-1000: never the shim)."""


def write_record(directory: str, name: str, content: dict[str, Any], *, synced: bool = False) -> None:
    """Write a JSON file atomically; `synced` as for `atomic_file.replace`."""
    atomic_file.replace(f"{directory}/{name}", json.dumps(content).encode(), mode=0o600, synced=synced)


def _has_written_exit(directory: str, content: dict[str, Any]) -> bool:
    """Record the end, and sync all records of the run to the disk; return False if the disk is full.

    They are not synced earlier: a power failure ends the processes that they describe, and a sync slows the
    start down.
    """
    for name in ("launch.json", "started.json"):
        with contextlib.suppress(OSError):
            fd = os.open(f"{directory}/{name}", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    try:
        write_record(directory, "exit.json", content, synced=True)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def oom_kills(path: str | None) -> int:
    """Return the cgroup's `oom_kill` counter (memory.events, or memory.oom_control in v1); 0 without one."""
    if not path:
        return 0
    try:
        with open(path) as file:
            for line in file:
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    except OSError:
        return 0
    return 0


def _execute(spec: dict[str, Any]) -> NoReturn:
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 its purpose


def _listen_on(listeners: list[int], env: dict[str, str]) -> None:
    """Make the passed sockets the container's descriptors from 3 on, as sd_listen_fds(3) expects them."""
    if not listeners:
        return
    # First out of the way: one of the numbers may be another socket's, or that of the specification.
    moved = [
        fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, descriptors.FIRST_PASSED + len(listeners)) for fd in listeners
    ]
    for number, fd in enumerate(moved, descriptors.FIRST_PASSED):
        os.dup2(fd, number)
    env["LISTEN_FDS"], env["LISTEN_PID"] = str(len(listeners)), str(os.getpid())


class PendingProcess:
    """The container's process before it has its specification, and the shim's ends of its pipes.

    It can be forked before its run is known, and gets its specification only after its identity has been
    recorded. In the container's own process `pid` is 0, `spec` is set, and the constructor returns after
    `run_program` has returned. In the shim, `pid` is the process's id in the shim's PID namespace,
    `machine_pid` its id on the machine, and these are descriptors:

    output         reads the container's stdout and stderr
    start_error    reads the reason why the program could not start; ends when the program starts
    spec_writer    sends the specification, then receives the descriptor of the notifications of bind(2)
    wakeup         readable after a SIGCHLD
    """

    def __init__(self, run_program: Callable[[dict[str, Any]], None]) -> None:
        """Fork. The child calls `run_program` in its sandbox; an exception there is the start error."""
        self.output, output = os.pipe()
        self.start_error, start_error = os.pipe()
        spec_reader, self.spec_writer = descriptors.pair()
        self.wakeup, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, no byte is written to `wake`
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.spec: dict[str, Any] = {}
        pid_reader, pid_writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.write(pid_writer, str(namespaces.machine_pid()).encode())
            os.close(pid_writer)
            os.close(self.spec_writer)
            self._run(spec_reader, output, start_error, run_program)
            return
        for fd in (output, start_error, spec_reader, pid_writer):
            os.close(fd)
        self.machine_pid = int(os.read(pid_reader, 32))
        os.close(pid_reader)

    def _run(
        self, spec_reader: int, output: int, start_error: int, run_program: Callable[[dict[str, Any]], None]
    ) -> None:
        """Wait for the specification, enter the sandbox and run the program.

        Only `run_program` may return here; a failure is written to `start_error` and ends the process.
        """
        devnull = os.open(os.devnull, os.O_RDWR)
        for source, target in ((devnull, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        raw, passed = descriptors.receive(spec_reader)
        if not raw:  # the shim has ended without a run
            os._exit(0)
        self.spec = json.loads(raw)
        # Its number may be one of those that the passed sockets get.
        shim = fcntl.fcntl(
            spec_reader, fcntl.F_DUPFD_CLOEXEC, descriptors.FIRST_PASSED + descriptors.MOST_PASSED
        )
        os.close(spec_reader)
        try:
            os.setsid()
            _listen_on(passed, self.spec["env"])
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            if self.spec["user"] is not None:
                os.fchown(output, self.spec["user"], self.spec["user"])  # programs open /dev/stderr
            sandbox.enter(self.spec)
            if self.spec["binding"] is not None:
                notifications = bind_notification.install()
                descriptors.send(shim, b"notifications", [notifications])
                os.close(notifications)
            os.close(shim)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            run_program(self.spec)
        except OSError as error:
            file = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, (str, bytes)) else ""
            message = f"{self.spec['argv'][0]}: {error.strerror or error}{file}"
            os.write(start_error, message.encode(errors="replace"))
            os._exit(START_ERROR)
        except Exception as error:  # noqa: BLE001 the child must report any error, and end
            os.write(start_error, f"{type(error).__name__}: {error}".encode())
            os._exit(START_ERROR)


def descendants(root: int) -> list[int]:
    """Return all processes below `root`, from /proc."""
    parents: dict[int, int] = {}
    for pid in procfs.processes():
        if stat := procfs.stat(pid):
            parents[pid] = int(stat[procfs.PARENT])
    below, frontier = [], [root]
    while frontier:
        root = frontier.pop()
        children = [pid for pid, parent in parents.items() if parent == root]
        below += children
        frontier += children
    return below


def kill_all(kill_file: str | None, groups: list[str]) -> bool:
    """SIGKILL every living process of the container; return whether there was one.

    They are the other processes of the shim's PID namespace. Without a namespace of its own, a process that
    has left its parent (setsid, double fork) is in the cgroup, or a child of the shim, which is a subreaper.
    """
    if namespaces.is_first_process():
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
            return True
        return False
    pids = set(descendants(os.getpid()))
    for group in groups:
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs") as file:
            pids |= {int(line) for line in file}
    pids.discard(os.getpid())
    if not pids:
        return False
    if kill_file:
        with contextlib.suppress(OSError), open(kill_file, "w") as file:
            file.write("1")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def _reap(main: int | None) -> int | None:
    """Reap ended children; return the wait status of the main process if it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == main:
                status = ended
    return status


def _copy_output(main: int, output: int, wakeup: int, log: ContainerLog, binder: PortBinder | None) -> int:
    """Copy output to the log, and bind ports, until the main process ends; return its wait status."""
    poll = select.poll()
    if binder is not None:
        poll.register(binder.listener, select.POLLIN)
    poll.register(output, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while True:
        for fd, event in poll.poll():
            if binder is not None and fd == binder.listener:
                if not event & select.POLLIN or not binder.answer():
                    poll.unregister(fd)
                continue
            data = os.read(fd, CHUNK_BYTES)
            if fd == wakeup:
                status = _reap(main)
                if status is not None:
                    return status
            elif data:
                log.write(data)
            else:
                poll.unregister(output)


def _finish(spec: dict[str, Any], output: int, log: ContainerLog) -> None:
    """Kill the remaining processes, then log their last output."""
    while kill_all(spec["kill"], spec["cgroups"]):
        _reap(None)
        select.select([], [], [], KILL_SECONDS)
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(output, CHUNK_BYTES):
            log.write(data)


def _identity(pid: int) -> list[int]:
    """Return the id and the start time (clock ticks since boot) of a process, for its record."""
    return [pid, procfs.start_time(pid)]


def _supervise(spec: dict[str, Any], process: PendingProcess, agent: int, listeners: list[int]) -> None:
    """As `supervise`, once this shim has the run."""
    directory = spec["directory"]
    log = ContainerLog(spec["log"], spec["log_bytes"])
    oom_kills_before = oom_kills(spec["oom"])
    write_record(
        directory,
        "started.json",
        {
            "boot_id": procfs.boot_id(),
            "recorder": _identity(namespaces.machine_pid()),
            "process": _identity(process.machine_pid),
            "cgroups": spec["cgroups"],
        },
    )
    os.close(agent)  # the agent learns that the start is recorded
    with contextlib.suppress(OSError):
        descriptors.send(process.spec_writer, json.dumps(spec).encode(), listeners)
    binder = _port_binder(process.spec_writer, spec["binding"])
    for fd in (process.spec_writer, *listeners):
        os.close(fd)
    start_error = os.read(process.start_error, 4096).decode(errors="replace")  # ends when the program runs
    status = _copy_output(process.pid, process.output, process.wakeup, log, binder)
    _finish(spec, process.output, log)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    content = {
        "code": 128 + number if number else os.WEXITSTATUS(status),
        "signal": number,
        "oom": oom_kills(spec["oom"]) > oom_kills_before,
        "error": start_error,
    }
    while not _has_written_exit(directory, content):
        select.select([], [], [], FULL_DISK_SECONDS)
    if not spec["join"]:  # the cgroups of a spare process are its own
        remove_cgroups(spec["cgroups"])


def _port_binder(process: int, binding: dict[str, Any] | None) -> PortBinder | None:
    """Return the binder of the container's ports; None if it has none, or ended before its program began."""
    if binding is None:
        return None
    try:
        _, passed = descriptors.receive(process)
    except OSError:
        return None
    return PortBinder(passed[0], binding) if passed else None


def remove_cgroups(groups: list[str]) -> None:
    """Remove the cgroups of a spare process; the kernel may lag behind its end."""
    for group in groups:
        for _ in range(REMOVE_TRIES):
            with contextlib.suppress(OSError):
                os.rmdir(group)
            if not os.path.exists(group):
                break
            select.select([], [], [], REMOVE_PAUSE_SECONDS)


def main() -> None:
    """Run one container by executing its program; return at its end."""
    block_stop_signals()
    process = PendingProcess(_execute)
    raw, listeners = descriptors.receive(0)
    agent = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    supervise(json.loads(raw), process, agent, listeners)


def block_stop_signals() -> None:
    """Block `STOP_SIGNALS`: always in the shim, and in the container until its program begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def supervise(spec: dict[str, Any], process: PendingProcess, agent: int, listeners: list[int]) -> None:
    """Run one container to its end. Return at once if another shim has the run, or the agent has given it up.

    Args:
        spec: the specification that `launch.start` sends.
        process: becomes the container.
        agent: the connection to the agent, which closes when the start is recorded, or with this process.
        listeners: the sockets that are passed to the container; the shim keeps none of them.
    """
    if locks.try_lock(f"{spec['directory']}/lock") is None:
        return
    try:
        with open(f"{spec['directory']}/launch.json") as file:
            if json.load(file)["nonce"] != spec["nonce"]:
                return
    except FileNotFoundError:
        return
    os.chdir("/")
    namespaces.prctl(namespaces.PR_SET_CHILD_SUBREAPER, 1)  # the parent of orphans, so that none escapes
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)
    _supervise(spec, process, agent, listeners)


def run_inside() -> None:
    """Become a command inside a running container: an exec probe or a preStop hook."""
    spec = json.loads(sys.stdin.buffer.read())
    sandbox.join(spec)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 its purpose
