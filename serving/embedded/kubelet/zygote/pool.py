"""Keeps a zygote per runtime and namespace alive while a Deployment there uses the runtime.

A zygote that dies is started anew; a restarted agent adopts those that run, by identity. Nothing ever waits for one:
who asks for a fork gets it at once, or starts the container as an ordinary new process.

Below DIR/zygotes: see `zygote.py`; and NAME.log, what it said.
"""

import asyncio
import hashlib
import logging
import signal
from pathlib import Path

from serving import clock, errors
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.embedded.kubelet.spawning import gone, spawn_zygote
from serving.embedded.kubelet.zygote.client import Asked
from serving.embedded.kubelet.zygote.eligibility import Kept, Wanted, kept_for
from serving.kube import Informer
from serving.objects import Object
from serving.system import processes

log = logging.getLogger(__name__)

IMAGES = frozenset(image for image, runtime in RUNTIMES.items() if runtime.module)
FIRST_RETRY_SECONDS = 0.1
RETRY_CAP_SECONDS = 60.0
"""A runtime whose imports fail is tried again now and then: its packages may be installed any moment."""
PATIENCE_SECONDS = 5.0
"""For an answer of a zygote that was too slow for a start: on a loaded machine it may only have been a long queue."""
HEALTHY_SECONDS = 10.0
"""One that lived this long is started anew at once when it dies."""


def name_of(kept: Kept) -> str:
    """Return the beginning of a zygote's file names: short, as a namespace's name need not be."""
    return hashlib.sha256(f"{kept.namespace}/{kept.image}".encode()).hexdigest()[:16]


class Zygotes:
    """Starts, adopts, restarts and ends them; one of these per agent."""

    def __init__(self, directory: Path, cgroups: Cgroups) -> None:
        self.directory = directory
        self._cgroups = cgroups
        self._wanted = Wanted()
        self._changed = asyncio.Event()
        self._kept: dict[Kept, asyncio.Task[None]] = {}
        self._doubts: dict[Kept, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def follow(self, deployments: Informer) -> None:
        """Take what is wanted from Deployments; the informer must not run yet."""
        deployments.on_change(self._deployment_changed)

    def _deployment_changed(self, before: Object | None, after: Object | None) -> None:
        if self._wanted.changed(kept_for(before, IMAGES), kept_for(after, IMAGES)):
            self._changed.set()

    def place(self, kept: Kept) -> str | None:
        """Return the name of the zygote to ask; None where none is kept."""
        return name_of(kept) if kept in self._kept else None

    def distrust(self, kept: Kept) -> None:
        """Look into a zygote that did not answer in time; may be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._look_into, kept)

    def _look_into(self, kept: Kept) -> None:
        if kept not in self._doubts:
            self._doubts[kept] = asyncio.create_task(self._examine(kept))
            self._doubts[kept].add_done_callback(lambda _: self._doubts.pop(kept))

    async def _examine(self, kept: Kept) -> None:
        """End a zygote that does not answer with more patience either: its keeper starts another."""
        try:
            asked = await asyncio.to_thread(Asked, self.directory, name_of(kept), PATIENCE_SECONDS)
            (await asyncio.to_thread(asked.answer)).dismiss()
        except errors.Temporary as error:
            log.warning("the zygote of %s in %s: %s", kept.image, kept.namespace, error)
        else:
            return
        if found := processes.read_identity(self.directory / f"{name_of(kept)}.json"):
            processes.send_signal(found[0], signal.SIGKILL)

    async def run(self, deployments: Informer) -> None:
        """Keep what is wanted until cancelled; then they stay, for the next agent to adopt."""
        await deployments.synced.wait()
        self._loop = asyncio.get_running_loop()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._end_others()
        self._cgroups.sweep_spares()
        async with asyncio.TaskGroup() as group:
            while True:
                wanted = self._wanted.all()
                for kept in wanted - self._kept.keys():
                    self._kept[kept] = group.create_task(self._keep(kept))
                for kept in self._kept.keys() - wanted:
                    end(self.directory, name_of(kept))
                await self._changed.wait()
                self._changed.clear()

    def _end_others(self) -> None:
        """End what an earlier agent kept and nobody wants any more."""
        wanted = {name_of(kept) for kept in self._wanted.all()}
        for path in self.directory.glob("*.json"):
            if path.stem not in wanted:
                end(self.directory, path.stem)

    async def _keep(self, kept: Kept) -> None:
        """Have one running while it is wanted; the imports of one that is being started take a second."""
        delay = FIRST_RETRY_SECONDS
        while kept in self._wanted.all():
            begun = clock.monotonic()
            what = await self._attend(kept)
            if kept in self._wanted.all():
                delay = FIRST_RETRY_SECONDS if clock.monotonic() - begun > HEALTHY_SECONDS else delay
                log.warning(
                    "the zygote of %s in %s %s; again in %g s", kept.image, kept.namespace, what, delay
                )
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_CAP_SECONDS)
        del self._kept[kept]
        self._changed.set()

    async def _attend(self, kept: Kept) -> str:
        """Adopt or start one, and wait for its end; returns what has become of it."""
        handle = self._adopted(kept)
        if handle is None:
            try:
                handle = await asyncio.to_thread(self._start, kept)
            except OSError as error:
                # A full disk or process table: Pods go on, and start as ordinary processes.
                return f"could not be started: {error}"
        if kept not in self._wanted.all():  # it is not any more, and was not there to be ended
            end(self.directory, name_of(kept))
        await gone(handle)
        (self.directory / f"{name_of(kept)}.sock").unlink(missing_ok=True)
        self._cgroups.sweep_spares()
        return "has ended"

    def _adopted(self, kept: Kept) -> int | None:
        found = processes.read_identity(self.directory / f"{name_of(kept)}.json")
        return None if found is None else processes.open_pidfd(found[0])

    def _start(self, kept: Kept) -> int:
        module = RUNTIMES[kept.image].module
        assert module is not None
        return spawn_zygote(self.directory, name_of(kept), module, self._cgroups.spares())


def end(directory: Path, name: str) -> None:
    """End one zygote and forget it; what was forked from it goes on."""
    if found := processes.read_identity(directory / f"{name}.json"):
        processes.send_signal(found[0], signal.SIGKILL)
    for suffix in ("json", "sock", "lock", "log"):
        (directory / f"{name}.{suffix}").unlink(missing_ok=True)


def end_all(directory: Path) -> None:
    """End every zygote."""
    for path in directory.glob("*.json"):
        end(directory, path.stem)
