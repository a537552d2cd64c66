"""Starts the processes that outlive the agent: shims, of which each starts its container, and zygotes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import serving
from serving import clock
from serving.embedded.pod_spec.environment import BASE
from serving.system import processes
from serving.system.isolation import namespaces
from serving.system.network import descriptors

_ROOT = str(Path(next(iter(serving.__path__))).parent)
"""The directory that has the package `serving`."""
_CALL_SHIM = (
    "import sys; sys.path.append(sys.argv[1]); from serving.embedded.kubelet.container import shim; shim.{}()"
)
"""Program of a bare interpreter that calls a function of the shim; its argument is `_ROOT`."""
_TRY_NOTIFICATION = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from serving.system.isolation import bind_notification, namespaces;"
    "bind_notification.check_receiver();"
    "namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1); bind_notification.install()"
)
"""Program of a bare interpreter that fails where a shim cannot be notified of bind(2), or cannot bind the
caller's socket; its argument is `_ROOT`."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Numeric libraries start threads at import, and a process with threads cannot be forked."""
NO_CUDA = {"CUDA_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""`torch.export.load` asks whether there are GPUs. With the second variable PyTorch derives the answer from
the first one (no GPU) without a call of the driver: in a child of a process that has initialized CUDA, CUDA
does not work."""
IDENTITY_SECONDS = 10.0
"""Longest wait for a zygote to record its identity, which it does before its imports."""
POLL_SECONDS = 0.01
"""Between checks for this record."""


def shim_command(function: str) -> list[str]:
    """Return the command that calls a function of `container/shim.py` in a bare interpreter."""
    return [sys.executable, "-I", "-S", "-c", _CALL_SHIM.format(function), _ROOT]


def can_notify_of_binds() -> bool:
    """Whether shims can be notified of their containers' calls of bind(2); tries it in a process.

    They cannot on a kernel older than 5.6, or, as below some container runtimes, where another program is
    notified of the system calls of all processes or pidfd_getfd(2) is denied.
    """
    command = [sys.executable, "-I", "-S", "-c", _TRY_NOTIFICATION, _ROOT]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def spawn_shim(
    errors_path: Path, specification: bytes, listeners: Sequence[int], *, isolated: bool
) -> tuple[int, socket.socket]:
    """Start a shim in a new session, and send the specification to it.

    Args:
        errors_path: file for the standard error of the shim itself.
        specification: of the container.
        listeners: sockets for the container; the caller closes them.
        isolated: make the shim the first process of a new PID namespace; needs root.

    Returns:
        Its pidfd, and the connection that it closes after it has recorded the start.
    """
    connection, shim_end = socket.socketpair()
    try:
        with (
            shim_end,
            open(errors_path, "wb") as errors_file,  # noqa: PTH123 for its descriptor
            namespaces.NewPidNamespace() if isolated else contextlib.nullcontext(),
        ):
            env = {"PATH": os.defpath}
            _, pidfd = _spawn(shim_command("main"), shim_end.fileno(), errors_file.fileno(), env)
    except OSError:
        connection.close()
        raise
    with contextlib.suppress(BrokenPipeError):
        descriptors.send(connection.fileno(), specification, listeners)
    return pidfd, connection


def spawn_zygote(directory: Path, name: str, module: str, cgroup_parents: Sequence[str]) -> int:
    """Start a zygote, wait until it has recorded its identity or ended, and return its pidfd.

    Args:
        directory: the directory of the zygotes' files.
        name: the stem of the zygote's file names.
        module: the runtime's module.
        cgroup_parents: the directories in which the zygote makes the cgroups of spare processes.
    """
    program = "serving.embedded.kubelet.zygote.process"
    argv = [sys.executable, "-P", "-m", program, str(directory), name, module, *cgroup_parents]
    devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with open(directory / f"{name}.log", "wb") as output:  # noqa: PTH123 for its descriptor
            pid, pidfd = _spawn(argv, devnull, output.fileno(), {**BASE, **ONE_THREAD, **NO_CUDA})
    finally:
        os.close(devnull)
    deadline = clock.monotonic() + IDENTITY_SECONDS
    while clock.monotonic() < deadline and processes.identity_of(pid) is not None:
        if (record := processes.read_identity(directory / f"{name}.json")) is not None:
            recorded, _ = record
            if recorded.pid == pid:  # else the record of an earlier zygote
                break
        time.sleep(POLL_SECONDS)
    return pidfd


def _spawn(argv: list[str], stdin: int, stderr: int, env: Mapping[str, str]) -> tuple[int, int]:
    """Start a process that outlives this one; return its pid and pidfd.

    Raises:
        OSError: it has not been started, or, where no descriptor is left, it was killed at once.
    """
    devnull = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, devnull, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
    finally:
        os.close(devnull)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
