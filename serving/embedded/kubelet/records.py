"""What is written about each Pod and each run below `DIR/pods/<uid>`, so that a restarted agent knows it all.

pod.json                         address, name, and how long it may take to stop
volumes/<name>                   emptyDir volumes
logs/<container>/<index>.log      and .log.times, .log.1, .log.1.times
containers/<container>/<index>/  one run: see `container/shim.py` for its files
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from serving.embedded.kubelet.pod.lifecycle import Exit, Run, exited, lost
from serving.system import atomic_file, locks
from serving.system.processes import ProcessIdentity


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a record; None where there is none, or not a whole one."""
    try:
        found = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a record, whole or not at all, readable by its owner alone.

    It outlives every process. That it outlives the machine's power too is seen to when the run ends (`container/shim.py`): before
    that it speaks of processes, which do not.
    """
    atomic_file.replace(path, orjson.dumps(content), mode=0o600)


def _mtime(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


@dataclass(frozen=True)
class RunDirectory:
    """The record of one run of one container."""

    path: Path

    @property
    def index(self) -> int:
        return int(self.path.name)

    @property
    def container(self) -> str:
        return self.path.parent.name

    @property
    def tmp(self) -> Path:
        """Its private /tmp."""
        return self.path / "tmp"

    def begin(self, **known: Any) -> str:
        """Record the intent to start it, before anything is started; returns the recorder's nonce."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.tmp.mkdir(parents=True, mode=0o700)
        nonce = secrets.token_hex(8)
        write_json(self.path / "launch.json", {"nonce": nonce, **known})
        return nonce

    @property
    def launch(self) -> dict[str, Any]:
        return read_json(self.path / "launch.json") or {}

    def identities(self) -> tuple[ProcessIdentity, ProcessIdentity] | None:
        """Return (recorder, process); None until both run."""
        found = read_json(self.path / "started.json")
        if found is None:
            return None
        boot = found["boot_id"]
        return ProcessIdentity(boot, *found["recorder"]), ProcessIdentity(boot, *found["process"])

    def read(self) -> Run:
        """Return what is known of the run."""
        started = self.path / "started.json"
        return Run(
            self.index,
            int(self.launch.get("streak", 0)),
            _mtime(started) if started.exists() else None,
            self.exit(),
        )

    def exit(self) -> Exit | None:
        """Return how it ended; None while it has not."""
        path = self.path / "exit.json"
        found = read_json(path)
        if found is None:
            return None
        if "lost" in found:
            return lost(_mtime(path), found["lost"])
        return exited(
            found["code"], found["signal"], oom=found["oom"], error=found["error"], finished_at=_mtime(path)
        )

    def declare_lost(self, why: str) -> None:
        """Write the verdict that nobody saw how it ended; one that is there stays."""
        if not (self.path / "exit.json").exists():
            write_json(self.path / "exit.json", {"lost": why})

    def unattended(self) -> bool:
        """Whether no recorder holds the run, and (this having been asked) none ever will."""
        if not self.path.is_dir():
            return True
        lock = locks.try_lock(self.path / "lock")
        if lock is None:
            return False
        if not (self.path / "started.json").exists():
            (self.path / "launch.json").unlink(missing_ok=True)
        os.close(lock)
        return True


@dataclass(frozen=True)
class PodDirectory:
    """The record of one Pod."""

    path: Path

    @property
    def info(self) -> dict[str, Any]:
        return read_json(self.path / "pod.json") or {}

    def save(self, info: dict[str, Any]) -> None:
        """Record the Pod, before anything of it is started."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.path / "pod.json", info)

    def run(self, container: str, index: int) -> RunDirectory:
        return RunDirectory(self.path / "containers" / container / str(index))

    def runs(self, container: str) -> list[RunDirectory]:
        """Return the recorded runs of a container, oldest first."""
        base = self.path / "containers" / container
        found = (
            [entry for entry in base.iterdir() if entry.name.isdigit() and (entry / "launch.json").exists()]
            if base.is_dir()
            else []
        )
        return [RunDirectory(entry) for entry in sorted(found, key=lambda entry: int(entry.name))]

    def latest(self) -> Iterator[RunDirectory]:
        """Yield the last run of every container."""
        base = self.path / "containers"
        for entry in sorted(base.iterdir()) if base.is_dir() else ():
            yield from self.runs(entry.name)[-1:]

    def forget_before(self, container: str, index: int) -> None:
        """Keep records and logs of this run and of the one before it."""
        for run in self.runs(container):
            if run.index < index:
                shutil.rmtree(run.tmp, ignore_errors=True)
            if run.index < index - 1:
                shutil.rmtree(run.path, ignore_errors=True)
                for suffix in (".1", "", ".times", ".1.times"):  # its name goes with its newest lines
                    log = self.path / "logs" / container / f"{run.index}.log{suffix}"
                    log.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the Pod: volumes, logs and records."""
        shutil.rmtree(self.path, ignore_errors=True)


def pods(root: Path) -> Iterator[PodDirectory]:
    """Yield every recorded Pod."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(root.iterdir()):
            if entry.is_dir():
                yield PodDirectory(entry)
