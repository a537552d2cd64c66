"""The zygote: a process that has imported a runtime, and forks itself for every replica of it.

The zygote imports a runtime before a replica is needed, so that a forked replica is ready to load a model
within milliseconds. Each runtime has one zygote in each namespace, as forked processes share the zygote's
memory layout and hash seed. The zygote never reads the specification of a replica: the forked shim does.

The zygote forks a container shim (`container/shim.py`), and the shim forks the container's process; both
outlive the zygote once a connection has taken them. A fork of 120 MB takes 7 ms, and a start needs two. So
one such pair, the spare, waits for the next connection, and a waiting spare dies with the zygote.

The zygote must stay single-threaded, hold no descriptors but those of this module, configure nothing (no
logging, no signal handlers), and not know Pods or the API.

Run as: python -P -m serving.embedded.kubelet.zygote.process DIRECTORY NAME MODULE [CGROUP ...]
Each spare has a cgroup below each CGROUP. In DIRECTORY:
    NAME.lock  held (flock) while the zygote lives: a second zygote ends at once
    NAME.json  the zygote's process identity, by `processes.write_identity`
    NAME.sock  exists while the zygote listens. A connection takes the spare: the answer is the shim's pidfd
               (SCM_RIGHTS) with {"inherited": bytes of memory that the shim shares with the zygote,
               "groups": the cgroups of the container's process}. Then the shim reads the specification, and
               closes the connection when it has recorded the start
"""

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
from serving.system import processes
from serving.system.files import locks
from serving.system.isolation import namespaces
from serving.system.network import descriptors

BACKLOG = 256
READ_SECONDS = 10.0
"""Longest wait of a shim for its specification, which the node agent sends within milliseconds."""
REST_SECONDS = 0.2
"""Pause between the use of a spare and the next fork, as the new replica needs the processors; a waiting
connection ends the pause, except after a fork that failed."""


def main() -> int:
    """Fork until killed; return at once if another process is this zygote. A forked process returns its exit
    status: the shim 0, the container's process the status of the runtime.
    """
    directory, name, module = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    lock = locks.try_lock(directory / f"{name}.lock")
    if lock is None:
        return 0
    processes.write_identity(directory / f"{name}.json", processes.own_identity())
    runtime = import_runtime(module)
    listener = _listen(directory, name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims have no parent that waits for them
    use_writer = _fork_spares(listener)
    # Only a spare runs the code below: the shim and, after `PendingProcess`, also the container's process.
    os.close(lock)
    shim.block_stop_signals()
    process = shim.PendingProcess(_prepare_program)
    if process.pid:  # the shim
        groups = sandbox.move_to_new_cgroups(process.pid, str(process.machine_pid), sys.argv[4:])
        _become_shim(listener, use_writer, process, groups)
        return 0
    # `_prepare_program` has closed the listener's descriptor, whose number may be another file's by now.
    listener.detach()
    arguments = process.spec["argv"][3:]  # after the interpreter, `-m` and the module
    sys.argv = [str(runtime.__file__), *arguments]
    sys.modules["__main__"] = runtime
    return int(runtime.main())


def import_runtime(module: str) -> Any:
    """Import the runtime and the modules of its `PRELOAD`, and exempt them from garbage collection."""
    gc.disable()
    runtime = importlib.import_module(module)
    for name in runtime.PRELOAD:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    if threads() != 1:
        sys.exit(f"importing {module} has started {threads() - 1} threads: it cannot be forked")
    return runtime


def threads() -> int:
    """Return the number of threads of this process."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 names only


def _listen(directory: Path, name: str) -> socket.socket:
    path = directory / f"{name}.sock"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o077)
    # Not by `path`, which may be longer than the 107 bytes of a socket's address.
    listener.bind(f"/proc/self/fd/{directory_fd}/{name}.sock")
    os.umask(before)
    os.close(directory_fd)
    listener.listen(BACKLOG)
    return listener


def _fork_spares(listener: socket.socket) -> int:
    """Keep one spare forked. Returns only in a spare, with the pipe on which it reports its use."""
    zygote = os.pidfd_open(os.getpid())
    while True:
        if threads() != 1:
            sys.exit("has more than one thread: it cannot be forked")
        use_reader, use_writer = os.pipe()
        ends_pause = [listener]
        try:
            if _fork() == 0:
                os.close(use_reader)
                os.setsid()
                namespaces.die_with(zygote)
                os.close(zygote)
                return use_writer
        except OSError as error:  # no memory, or too many processes: the client gets no answer
            print(f"fork: {error}", file=sys.stderr, flush=True)  # noqa: T201 its log
            ends_pause = []  # a connection that waits would end it at once, again and again
        os.close(use_writer)
        os.read(use_reader, 1)  # returns also when the spare dies
        os.close(use_reader)
        select.select(ends_pause, [], [], REST_SECONDS)


def _fork() -> int:
    """Fork; as root, the child is the first process of a new PID namespace."""
    if os.geteuid() != 0:
        return os.fork()
    with namespaces.NewPidNamespace() as namespace:
        pid = os.fork()
        if pid == 0:
            namespace.detach()
    return pid


def _become_shim(
    listener: socket.socket, use_writer: int, process: shim.PendingProcess, groups: list[str]
) -> None:
    """Wait for a connection, answer, and supervise the run that the client specifies.

    Args:
        listener: the zygote's socket.
        use_writer: the pipe by which the zygote learns that it needs the next spare.
        process: waits for the specification, and becomes the container's process.
        groups: the cgroups of `process`; empty if it has none of its own yet.
    """
    connection = listener.accept()[0]
    listener.close()
    namespaces.die_with(None)
    os.write(use_writer, b"1")
    os.close(use_writer)
    connection.settimeout(READ_SECONDS)
    try:
        answer = json.dumps({"inherited": unreclaimable_bytes(), "groups": groups}).encode()
        pidfd = os.pidfd_open(os.getpid())
        socket.send_fds(connection, [answer], [pidfd])
        os.close(pidfd)
        raw, container_listeners = descriptors.receive(connection.fileno(), READ_SECONDS)
        spec: dict[str, Any] = json.loads(raw)
    except (OSError, ValueError):  # the client is gone, or dismissed this process
        os.close(process.spec_writer)  # which ends the container's process
        os.waitpid(process.pid, 0)
        shim.remove_cgroups(groups)
        return
    shim.supervise(spec, process, connection.detach(), container_listeners)


def unreclaimable_bytes() -> int:
    """Return the bytes of this process's memory that the kernel cannot reclaim: all but mapped files."""
    total = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) * 1024
    return total


def _prepare_program(spec: dict[str, Any]) -> None:
    """Reset the container's process to the state of a new one, except for the zygote's imports."""
    os.closerange(descriptors.FIRST_PASSED + spec["listeners"], os.sysconf("SC_OPEN_MAX"))
    namespaces.prctl(namespaces.PR_SET_DUMPABLE, 1)  # own its /proc entries, as after an exec
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # Python's own handler of SIGINT raises KeyboardInterrupt, as in a new process.
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python's default
    os.environ.clear()
    os.environ.update(spec["env"])
    processes.set_command_line(spec["argv"])
    sys.orig_argv = list(spec["argv"])
    # "" as with `python -m`
    sys.path[:] = ["", *(path for path in sys.path if os.path.exists(path))]  # noqa: PTH110
    importlib.invalidate_caches()
    random.seed()
    if multiprocessing := sys.modules.get("multiprocessing.process"):
        multiprocessing.current_process().authkey = os.urandom(32)
    gc.enable()


if __name__ == "__main__":
    sys.exit(main())
