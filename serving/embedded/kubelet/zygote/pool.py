"""Keeps a zygote per runtime and namespace alive while a Deployment there uses the runtime.

A zygote that dies is replaced; a restarted agent adopts running zygotes by process identity. A start waits
for a zygote only while the zygote imports: an executed container would import the same modules for as long.

Files below DIR/zygotes: those of `process.py`, and NAME.log, the zygote's output.
"""

import asyncio
import contextlib
import hashlib
import logging
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from serving import clock, errors
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.kubelet.runtimes import LocalRuntime
from serving.embedded.kubelet.spawning import spawn_zygote
from serving.embedded.kubelet.zygote.client import ForkRequest
from serving.embedded.kubelet.zygote.eligibility import NeededZygotes, ZygoteKey, zygotes_for
from serving.kube import Informer
from serving.objects import Object
from serving.system import processes
from serving.system.process_exit import wait_for_exit
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.1
RETRY_CAP_SECONDS = 60.0
"""Longest pause between retries of a runtime whose imports fail: its packages may be installed later."""
CHECK_SECONDS = 5.0
"""Longest wait for a fork after a start got none within `client.ANSWER_SECONDS`: a zygote on a loaded machine
may be slow, but is not stuck."""
IMPORT_SECONDS = 30.0
"""Longest wait of a start for the imports of a zygote: five times those of PyTorch on a loaded machine."""
POLL_SECONDS = 0.02
"""Between checks for the socket of a zygote that imports, which takes a second or more."""
HEALTHY_SECONDS = 10.0
"""A zygote that lived for longer is replaced after `FIRST_RETRY_SECONDS` when it dies."""


def name_of(key: ZygoteKey) -> str:
    """Return the stem of a zygote's file names: a hash, as names of namespaces may be long."""
    return hashlib.sha256(f"{key.namespace}/{key.image}".encode()).hexdigest()[:16]


class ZygotePool:
    """Starts, adopts, restarts and ends zygotes; one pool per agent."""

    def __init__(self, directory: Path, cgroups: Cgroups, runtimes: Mapping[str, LocalRuntime]) -> None:
        self.directory = directory
        self._cgroups = cgroups
        self._modules = {image: runtime.module for image, runtime in runtimes.items() if runtime.module}
        self._needed = NeededZygotes()
        self._changed = asyncio.Event()
        """Set when `_needed` or `_kept` has changed."""
        self._kept: dict[ZygoteKey, asyncio.Task[None]] = {}
        """The tasks that keep one zygote each."""
        self._checks: dict[ZygoteKey, asyncio.Task[None]] = {}
        self._importing: dict[ZygoteKey, asyncio.Event] = {}
        """One for each zygote that runs: set once it listens, or once the wait for its imports is over."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of `run`, for calls from other threads."""

    @property
    def images(self) -> frozenset[str]:
        """Return the images whose processes can be forked."""
        return frozenset(self._modules)

    def follow(self, deployments: Informer) -> None:
        """Keep the zygotes that Deployments need; call before the informer runs."""
        deployments.on_change(self._deployment_changed)

    def _deployment_changed(self, before: Object | None, after: Object | None) -> None:
        if self._needed.changed(zygotes_for(before, self.images), zygotes_for(after, self.images)):
            self._changed.set()

    def has(self, key: ZygoteKey) -> bool:
        """Whether a zygote is kept for this key; it may still be starting."""
        return key in self._kept

    async def imported(self, key: ZygoteKey) -> None:
        """Wait while the zygote of this key imports, for at most `IMPORT_SECONDS` since its start."""
        if event := self._importing.get(key):
            await event.wait()

    def check(self, key: ZygoteKey) -> None:
        """Check a zygote that did not answer in time; may be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._start_check, key)

    def _start_check(self, key: ZygoteKey) -> None:
        if key not in self._checks:
            self._checks[key] = asyncio.create_task(self._check(key))
            self._checks[key].add_done_callback(lambda _: self._checks.pop(key))

    async def _check(self, key: ZygoteKey) -> None:
        """Kill a zygote that does not answer within `CHECK_SECONDS`; `_keep` starts another."""
        try:
            request = await asyncio.to_thread(ForkRequest, self.directory, name_of(key), CHECK_SECONDS)
            (await asyncio.to_thread(request.result)).dismiss()
        except errors.Temporary as error:
            log.warning("the zygote of %s in %s: %s", key.image, key.namespace, error)
        else:
            return
        if zygote := _recorded_identity(self.directory, name_of(key)):
            processes.send_signal(zygote, signal.SIGKILL)

    async def run(self, deployments: Informer) -> None:
        """Keep the needed zygotes until cancelled; they stay, for the next agent to adopt."""
        await deployments.synced.wait()
        self._loop = asyncio.get_running_loop()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._end_unneeded()
        self._cgroups.sweep_spares()
        async with asyncio.TaskGroup() as group:
            while True:
                needed = self._needed.all()
                for key in needed - self._kept.keys():
                    self._kept[key] = group.create_task(self._keep(key))
                for key in self._kept.keys() - needed:
                    end(self.directory, name_of(key))
                await self._changed.wait()
                self._changed.clear()

    def _end_unneeded(self) -> None:
        """End zygotes of an earlier agent that no Deployment needs."""
        needed = {name_of(key) for key in self._needed.all()}
        for path in self.directory.glob("*.json"):
            if path.stem not in needed:
                end(self.directory, path.stem)

    async def _keep(self, key: ZygoteKey) -> None:
        """Keep one zygote running while it is needed; its imports take about a second."""
        delay = FIRST_RETRY_SECONDS
        while key in self._needed.all():
            begun = clock.monotonic()
            with self._imports(key) as done:
                outcome = await self._run_once(key, done)
            if key in self._needed.all():
                delay = FIRST_RETRY_SECONDS if clock.monotonic() - begun > HEALTHY_SECONDS else delay
                log.warning(
                    "the zygote of %s in %s %s; again in %g s", key.image, key.namespace, outcome, delay
                )
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_CAP_SECONDS)
        del self._kept[key]
        self._changed.set()

    @contextlib.contextmanager
    def _imports(self, key: ZygoteKey) -> Iterator[asyncio.Event]:
        """Let `imported` wait until the yielded event is set, or the context ends."""
        done = self._importing[key] = asyncio.Event()
        try:
            yield done
        finally:
            del self._importing[key]
            done.set()

    async def _run_once(self, key: ZygoteKey, imported: asyncio.Event) -> str:
        """Adopt or start a zygote and wait for its end; return the outcome, for the log."""
        pidfd = self._adopted(key)
        if pidfd is None:
            try:
                pidfd = await asyncio.to_thread(self._start, key)
            except OSError as error:
                # A full disk or process table: containers are executed as new processes.
                return f"could not be started: {error}"
        if key not in self._needed.all():  # it became unneeded before there was a process to end
            end(self.directory, name_of(key))
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._await_socket(key, imported))
            await wait_for_exit(pidfd)
            watch.cancel()
        (self.directory / f"{name_of(key)}.sock").unlink(missing_ok=True)
        self._cgroups.sweep_spares()
        return "has ended"

    async def _await_socket(self, key: ZygoteKey, imported: asyncio.Event) -> None:
        """Set the event when the zygote listens, or after `IMPORT_SECONDS`."""
        path = self.directory / f"{name_of(key)}.sock"
        deadline = clock.monotonic() + IMPORT_SECONDS
        while not path.exists() and clock.monotonic() < deadline:  # noqa: ASYNC110 another process makes it
            await asyncio.sleep(POLL_SECONDS)
        imported.set()

    def _adopted(self, key: ZygoteKey) -> int | None:
        """Return the pidfd of the running zygote of this key; None if there is none."""
        zygote = _recorded_identity(self.directory, name_of(key))
        return None if zygote is None else processes.open_pidfd(zygote)

    def _start(self, key: ZygoteKey) -> int:
        """Start a zygote, and return its pidfd; blocks until the zygote has recorded its identity.

        The zygote itself removes an earlier socket, but only after its imports: `_await_socket` would not
        wait for these.
        """
        (self.directory / f"{name_of(key)}.sock").unlink(missing_ok=True)
        return spawn_zygote(
            self.directory, name_of(key), self._modules[key.image], self._cgroups.make_spares()
        )


def _recorded_identity(directory: Path, name: str) -> ProcessIdentity | None:
    """Return the process identity in a zygote's record; None without a valid record."""
    record = processes.read_identity(directory / f"{name}.json")
    if record is None:
        return None
    identity, _ = record
    return identity


def end(directory: Path, name: str) -> None:
    """End a zygote and remove its files; the processes forked from it keep running."""
    if zygote := _recorded_identity(directory, name):
        processes.send_signal(zygote, signal.SIGKILL)
    for suffix in ("json", "sock", "lock", "log"):
        (directory / f"{name}.{suffix}").unlink(missing_ok=True)


def end_all(directory: Path) -> None:
    """End every zygote."""
    for path in directory.glob("*.json"):
        end(directory, path.stem)
