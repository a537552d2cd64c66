"""Keeps the components of one data directory running: starts, adopts, restarts and stops them.

They outlive it on purpose: each is the leader of its own session, logs to a file, and is found again by its
identity, so that SIGKILL of `up` stops nothing and the next `up` takes over. It prints nothing and decides
nothing that `restart_policy` can decide.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.supervisor import restart_policy
from serving.settings import SupervisorSettings
from serving.system import locks, processes
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)

COMPONENTS = ("api", "node", "controllers", "gateway", "activator")
"""In the order of their start; all but `api` keep trying until it answers."""


@contextlib.contextmanager
def owned(data_dir: DataDir) -> Iterator[None]:
    """Own the data directory: one process at a time, until it dies or leaves.

    Raises:
        errors.UserError: another process owns it, or the directory cannot be used.
    """
    try:
        data_dir.root.mkdir(parents=True, exist_ok=True, mode=0o711)
        lock = locks.try_lock(data_dir.lock)
    except OSError as error:
        raise errors.UserError(
            f"cannot use {data_dir.root}: {error.strerror}; choose another with --data-dir"
        ) from error
    if lock is None:
        found = processes.read_identity(data_dir.identity("up"))
        holder = f" (pid {found[0].pid})" if found else ""
        raise errors.UserError(
            f"slipway up already runs on {data_dir.root}{holder}; "
            f"stop it with `slipway down --data-dir {data_dir.root}`, or choose another --data-dir"
        )
    try:
        processes.write_identity(data_dir.identity("up"), processes.own_identity())
        try:
            yield
        finally:
            data_dir.identity("up").unlink(missing_ok=True)
    finally:
        os.close(lock)


@dataclass
class _Child:
    """One component as it runs now."""

    name: str
    who: ProcessIdentity | None = None
    process: subprocess.Popen[bytes] | None = None
    history: restart_policy.History = field(default_factory=restart_policy.History)
    due: float = 0.0
    """When to start it, on the monotonic clock, while `who` is None."""


class Supervisor:
    """The components of one data directory; `owned` must be held."""

    def __init__(
        self, data_dir: DataDir, arguments: Sequence[str], settings: SupervisorSettings,
        *, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Args: arguments: what follows `component NAME` on every component's command line."""
        self._data_dir = data_dir
        self._arguments = list(arguments)
        self._settings = settings
        self._environment = dict(os.environ if environment is None else environment)
        self._children = {name: _Child(name) for name in COMPONENTS}
        self.proven = False
        """Everything has been up once; from then on nothing is given up."""

    def adopt(self) -> list[str]:
        """Take over what an earlier `up` left running; returns the components' names."""
        adopted = []
        for child in self._children.values():
            found = processes.read_identity(self._data_dir.identity(child.name))
            if found is not None and processes.is_alive(found[0]):
                child.who = found[0]
                child.history = restart_policy.started(child.history, clock.monotonic())
                adopted.append(child.name)
        return adopted

    async def run(self) -> None:
        """Start what is missing, and start again what ends, until cancelled (which stops nothing).

        Raises:
            errors.UserError: a component cannot run as asked, and not everything has been up yet.
        """
        self._data_dir.logs.mkdir(parents=True, exist_ok=True)
        while True:
            for child in self._children.values():
                if child.who is not None and self._ended(child):
                    self._after(child)
                if child.who is None and clock.monotonic() >= child.due:
                    self._start(child)
            await asyncio.sleep(self._settings.poll_seconds)

    def _ended(self, child: _Child) -> bool:
        if child.process is not None:
            return child.process.poll() is not None
        assert child.who is not None
        return not processes.is_alive(child.who)

    def _after(self, child: _Child) -> None:
        code = child.process.returncode if child.process is not None else None
        child.who = child.process = None
        now = clock.monotonic()
        what = restart_policy.ended(child.history, code, now=now, proven=self.proven, settings=self._settings)
        match what:
            case restart_policy.Fail():
                raise errors.UserError(self._last_words(child.name))
            case restart_policy.Restart(delay, history):
                log.warning("%s ended (%s); again in %.1f s", child.name, code, delay)
                child.history = history
                child.due = now + delay

    def _start(self, child: _Child) -> None:
        found = processes.read_identity(self._data_dir.identity(child.name))
        if found is not None and processes.is_alive(found[0]):
            child.who = found[0]
        else:
            with self._log_file(child.name).open("ab") as sink:
                child.process = subprocess.Popen(
                    [sys.executable, "-m", "serving.app", "component", child.name, *self._arguments],
                    stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                    start_new_session=True, cwd="/", env=self._environment,
                )  # fmt: skip
            child.who = processes.identity_of(child.process.pid) or ProcessIdentity("", child.process.pid, 0)
        child.history = restart_policy.started(child.history, clock.monotonic())

    def _log_file(self, name: str) -> Path:
        path = self._data_dir.logs / f"{name}.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > self._settings.log_bytes:
                path.replace(path.with_suffix(".log.1"))
        return path

    def _last_words(self, name: str) -> str:
        lines = self._log_file(name).read_text(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.startswith("error: ")), "")
        return said.removeprefix("error: ") or f"{name} does not start; see {self._log_file(name)}"

    async def stop(self, *names: str) -> None:
        """Stop these components: SIGTERM, and SIGKILL where that does not help in time."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._stop(self._children[name]))

    async def _stop(self, child: _Child) -> None:
        if child.who is None or self._ended(child):
            return
        deadline = clock.monotonic() + self._settings.stop_seconds
        processes.send_signal(child.who, signal.SIGTERM)
        while not self._ended(child):
            if clock.monotonic() > deadline:
                log.warning("%s did not stop in %.0f s: killed", child.name, self._settings.stop_seconds)
                processes.send_signal(child.who, signal.SIGKILL)
                deadline = clock.monotonic() + self._settings.stop_seconds
            await asyncio.sleep(self._settings.poll_seconds)
        self._data_dir.identity(child.name).unlink(missing_ok=True)
        child.who = child.process = None

    def kill(self) -> None:
        """SIGKILL every component, now."""
        for child in self._children.values():
            if child.who is not None:
                processes.send_signal(child.who, signal.SIGKILL)
