"""Keeps the components of one data directory running: starts, adopts, restarts and stops them.

Components outlive `up`: each leads its own session, logs to a file, and records its process identity. SIGKILL
of `up` stops no component, and the next `up` adopts all of them. `restart_policy` decides about restarts.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.supervisor import liveness, ownership, restart_policy
from serving.embedded.supervisor.zygote import ComponentZygote
from serving.settings import SupervisorSettings
from serving.system import processes
from serving.system.files import locks, run_files
from serving.system.network.kept_sockets import KeptSockets
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)

COMPONENTS = ("api", "node", "controllers", "gateway", "activator")
"""In the order of their start; all others retry until `api` answers."""
POLL_SECONDS = 0.1
"""Between checks of the components: an adopted component is no child process, so its end sends no signal."""
ASK_SECONDS = 1.0
"""Between questions to a component's event loop: short beside `hang_seconds`, the silence of a hang."""


class OwnedByUp(errors.UserError):
    """An `up` that is not ending owns the data directory."""


@contextlib.contextmanager
def owned(data_dir: DataDir, *, command: str = "up", patience: float = 0.0) -> Iterator[None]:
    """Own the data directory, one process at a time; wait at most `patience` seconds for its owner to end.

    The wait ends at once when the owner is an `up`. `command` is that of this process, for other processes.

    Raises:
        OwnedByUp: an `up` owns it.
        errors.UserError: another process owns it, another user could change it, or it cannot be used.
    """
    try:
        data_dir.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        ownership.restrict_to_owner(data_dir.root)
        deadline = clock.monotonic() + patience
        while (lock := locks.try_lock(data_dir.lock)) is None and clock.monotonic() < deadline:
            if _is_owned_by_up(data_dir):
                break
            time.sleep(POLL_SECONDS)
    except OSError as error:
        raise errors.UserError(
            f"cannot use {data_dir.root}: {error.strerror}; choose another with --data-dir"
        ) from error
    if lock is None:
        record = processes.read_running(data_dir.identity("up"))
        if record is not None:
            identity, _ = record
            holder = f" (pid {identity.pid})"
        else:
            holder = ", and a full disk keeps its pid from being recorded"
        failure = OwnedByUp if _is_owned_by_up(data_dir) else errors.UserError
        raise failure(
            f"slipway up already runs on {data_dir.root}{holder}; "
            f"stop it with `slipway down --data-dir {data_dir.root}`, or choose another --data-dir"
        )
    try:
        own = processes.encoded(processes.own_identity(), command=command)
        run_files.write(data_dir.identity("up"), own)
        try:
            yield
        finally:
            data_dir.identity("up").unlink(missing_ok=True)
    finally:
        os.close(lock)


def _is_owned_by_up(data_dir: DataDir) -> bool:
    """Whether the recorded owner is an `up`; False of an owner that a full disk keeps from being recorded."""
    record = processes.read_running(data_dir.identity("up"))
    return record is not None and record[1].get("command", "up") == "up"


@dataclass
class SupervisedComponent:
    """The state of one component."""

    name: str
    identity: ProcessIdentity | None = None
    """None while it does not run."""
    history: restart_policy.RestartHistory = field(default_factory=restart_policy.RestartHistory)
    answered: float | None = None
    """When its event loop answered last, or it was adopted, on the monotonic clock; None from a start
    until its first answer."""
    _started: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set by a start, until the new process is asked."""
    due: float = 0.0
    """When to start it, on the monotonic clock, while it does not run."""
    check_failed: bool = False
    """Whether the last check of its process failed, which has been logged."""
    kept: KeptSockets = field(default_factory=KeptSockets)
    """The sockets of its last answer, for its successor."""

    def note_start(self, now: float) -> None:
        """Begin the life of a new process; `now` is on the monotonic clock."""
        self.history = restart_policy.started(self.history, now)
        self._started.set()

    async def until_next_question(self) -> None:
        """Wait until its event loop is to be asked: at once after a start, and often before the first answer.

        The first answer ends the start, in which a silence of `start_seconds` is allowed; from then on a
        silence of `hang_seconds` is a hang.
        """
        seconds = POLL_SECONDS if self.answered is None else ASK_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._started.wait(), seconds)
        self._started.clear()

    def note_answer(self, answer: liveness.LivenessAnswer, asked: ProcessIdentity | None) -> None:
        """Take over the sockets of an answer; `asked` is the process to which the question was sent."""
        if self.identity == asked:
            self.answered = clock.monotonic()
            answer.pass_to(self.kept)
        else:  # the last answer of a process that has ended: the other sockets are still needed
            self.kept.join(answer.descriptors)


class Supervisor:
    """The components of one data directory; `owned` must be held."""

    def __init__(
        self,
        data_dir: DataDir,
        arguments: Sequence[str],
        settings: SupervisorSettings,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`arguments` follow `component NAME` on every component's command line."""
        self._data_dir = data_dir
        self._settings = settings
        self._zygote = ComponentZygote(
            data_dir, arguments, settings, dict(os.environ if environment is None else environment)
        )
        self._components = {name: SupervisedComponent(name) for name in COMPONENTS}
        self.proven = False
        """Whether every component has been up once; from then on every one is restarted."""

    def adopt(self) -> list[str]:
        """Adopt the components that an earlier `up` left running; return their names."""
        adopted = []
        for component in self._components.values():
            record = processes.read_running(self._data_dir.identity(component.name))
            if record is not None:
                component.identity, _ = record
                component.answered = clock.monotonic()
                component.history = restart_policy.started(component.history, component.answered)
                adopted.append(component.name)
        return adopted

    def adopted(self) -> list[str]:
        """Return the components that run and that this process has adopted, and not started."""
        own = processes.own_identity()
        return [
            component.name
            for component in self._components.values()
            if component.identity is not None
            and processes.is_alive(component.identity)
            and component.identity.is_older_than(own)
        ]

    async def run(self) -> None:
        """Start components and restart those that end, until cancelled. Cancelling stops no component.

        Raises:
            errors.UserError: a component cannot run as configured, and not all components have been up yet.
        """
        self._data_dir.logs.mkdir(parents=True, exist_ok=True)
        asking = [asyncio.create_task(self._ask(component)) for component in self._components.values()]
        try:
            await self._keep_running()
        finally:
            for task in asking:
                task.cancel()
            self._zygote.close()

    async def _keep_running(self) -> None:
        checked = clock.monotonic()
        while True:
            now = clock.monotonic()
            if now - checked > ASK_SECONDS:
                self._excuse(now - checked)
            checked = now
            for component in self._components.values():
                try:
                    await self._check(component, now)
                except OSError as error:  # no descriptor or memory is left: the next check may succeed
                    if not component.check_failed:
                        log.warning("%s cannot be checked: %s", component.name, error)
                    component.check_failed = True
                else:
                    component.check_failed = False
            await asyncio.sleep(POLL_SECONDS)

    async def _check(self, component: SupervisedComponent, now: float) -> None:
        """Note the component's end, kill it if it has hung, or start it if that is due.

        Raises:
            errors.UserError: as `run`.
            OSError: /proc cannot be read.
        """
        if component.identity is not None and not processes.is_alive(component.identity):
            await self._note_end(component)
        elif component.identity is not None and self._is_hung(component, now):
            self._kill_hung(component)
        if component.identity is None and clock.monotonic() >= component.due:
            await self._start(component)

    def _is_hung(self, component: SupervisedComponent, now: float) -> bool:
        is_silent = restart_policy.is_hung(
            component.history, component.answered, now=now, settings=self._settings
        )
        # On a full disk a component has no socket, and cannot answer.
        return is_silent and self._data_dir.liveness(component.name).exists()

    async def _ask(self, component: SupervisedComponent) -> None:
        """Note when a component's event loop answers, until cancelled."""
        socket = self._data_dir.liveness(component.name)
        while True:
            identity = component.identity
            answer = await liveness.ask(socket, self._settings.hang_seconds)
            if answer is not None:
                component.note_answer(answer, identity)
            await component.until_next_question()

    def _excuse(self, seconds: float) -> None:
        """Forgive a silence of `seconds` in which this process checked no component.

        It was stopped, the machine slept, or the start of another component took long.
        """
        for component in self._components.values():
            component.history = restart_policy.started(component.history, component.history.started + seconds)
            if component.answered is not None:
                component.answered += seconds

    def _kill_hung(self, component: SupervisedComponent) -> None:
        assert component.identity is not None
        processes.send_signal(component.identity, signal.SIGKILL)
        log.error("%s has hung: killed", component.name)
        # As after a start: the next polls do not kill the process again, and its end counts as a failure.
        component.answered = None
        component.history = restart_policy.started(component.history, clock.monotonic())

    async def _note_end(self, component: SupervisedComponent) -> None:
        assert component.identity is not None
        code = await self._zygote.exit_status(component.identity)
        component.identity = None
        now = clock.monotonic()
        decision = restart_policy.ended(
            component.history, code, now=now, proven=self.proven, settings=self._settings
        )
        match decision:
            case restart_policy.Fail():
                raise errors.UserError(self._last_words(component.name))
            case restart_policy.Restart(delay, history):
                log.warning("%s ended (%s); again in %.1f s", component.name, code, delay)
                component.history = history
                component.due = now + delay

    async def _start(self, component: SupervisedComponent) -> None:
        component.answered = None
        record = processes.read_running(self._data_dir.identity(component.name))
        if record is not None:  # started by hand, or by a zygote that did not answer in time
            component.identity, _ = record
        else:
            with self._open_log(component.name) as output:
                forking = asyncio.ensure_future(
                    self._zygote.fork(component.name, output, component.kept.to_pass())
                )
                try:
                    component.identity = await asyncio.shield(forking)
                except OSError as error:  # a full process table: the other components serve meanwhile
                    self._put_off(component, error)
                    return
                except asyncio.CancelledError:  # `stop` must know the process that is starting
                    with contextlib.suppress(OSError):
                        component.identity = await forking
                    raise
        component.note_start(clock.monotonic())

    def _put_off(self, component: SupervisedComponent, error: OSError) -> None:
        """Try a start again later, as after an end at once."""
        now = clock.monotonic()
        restart = restart_policy.failed_start(component.history, now=now, settings=self._settings)
        log.error("%s cannot be started (%s); again in %.1f s", component.name, error.strerror, restart.delay)
        component.history = restart.history
        component.due = now + restart.delay

    def _open_log(self, name: str) -> BinaryIO:
        """Open a component's log for appending; where that fails, as on a full disk, /dev/null."""
        path = self._log_file(name)
        try:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > self._settings.log_bytes:
                    path.replace(path.with_suffix(".log.1"))
            return path.open("ab")
        except OSError as error:
            log.warning("the log of %s cannot be opened: %s", name, error.strerror)
            return Path(os.devnull).open("ab")

    def _log_file(self, name: str) -> Path:
        return self._data_dir.logs / f"{name}.log"

    def _last_words(self, name: str) -> str:
        path = self._log_file(name)
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:  # the log could not be opened either
            lines = []
        error = next((line for line in reversed(lines) if line.startswith("error: ")), "")
        return error.removeprefix("error: ") or f"{name} does not start; see {path}"

    async def stop(self, *names: str) -> None:
        """Stop these components by SIGTERM, and by SIGKILL after `stop_seconds`."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._stop(self._components[name]))

    async def _stop(self, component: SupervisedComponent) -> None:
        await self._end(component)
        component.kept.close()  # no successor will come

    async def _end(self, component: SupervisedComponent) -> None:
        if component.identity is None:
            return
        deadline = clock.monotonic() + self._settings.stop_seconds
        unsent: signal.Signals | None = signal.SIGTERM
        is_alive = True
        while is_alive:
            if clock.monotonic() > deadline:
                log.warning("%s did not stop in %.0f s: killed", component.name, self._settings.stop_seconds)
                unsent = signal.SIGKILL
                deadline = clock.monotonic() + self._settings.stop_seconds
            with contextlib.suppress(OSError):  # no descriptor or memory is left: the next try may succeed
                if unsent is not None:
                    processes.send_signal(component.identity, unsent)
                    unsent = None
                is_alive = processes.is_alive(component.identity)
            if is_alive:
                await asyncio.sleep(POLL_SECONDS)
        self._data_dir.identity(component.name).unlink(missing_ok=True)
        component.identity = None

    def kill(self, *names: str) -> None:
        """SIGKILL these components."""
        for name in names:
            if (identity := self._components[name].identity) is not None:
                processes.send_signal(identity, signal.SIGKILL)
