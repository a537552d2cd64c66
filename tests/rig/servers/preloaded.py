"""Processes that are forked from one that has imported their modules: a start costs no imports."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

NAME = "preloaded"
"""Of these processes, which `multiprocessing.active_children` returns beside those of the product."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.rig.servers.preloaded_modules"])


class PreloadedProcess:
    """A function that runs in a process of its own, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, function: Callable[..., None], *arguments: object, log: Path) -> None:
        """Start it. `function` is of a module's top level; its output is appended to `log`."""
        self._process = _CONTEXT.Process(
            target=_run, args=(function, arguments, log, dict(os.environ)), name=NAME, daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, the negative signal if one ended it; None while it runs."""
        if self._status is None:
            self._status = self._process.exitcode
            if self._status is not None:
                self._process.close()  # its pipes, while a fixture of a module keeps this object
        return self._status

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end, and return the exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self._status is None:
            self._process.join(seconds)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(NAME, seconds or 0.0)
        return status

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self._status is None:
            self._process.kill()


def _run(
    function: Callable[..., None], arguments: tuple[object, ...], log: Path, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for path in Path("/proc/self/fd").iterdir():  # those of multiprocessing are inheritable
        if int(path.name) > 2:
            with contextlib.suppress(OSError):
                fcntl.fcntl(int(path.name), fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    function(*arguments)
