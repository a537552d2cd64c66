"""The records of Pods and runs below `DIR/pods/<uid>`, from which a restarted agent continues.

pod.json                         address, user id and port of the Unix socket; name, and grace period
volumes/<name>                   emptyDir volumes
logs/<container>/<index>.log      and .log.times, .log.1, .log.1.times
containers/<container>/<index>/  one run: see `container/shim.py` for its files; `shutdown` exists where a
                                 shutdown of the node ended it; `message.json` has the termination message of
                                 a file, as the file goes with the run's /tmp; `not_limited.json` has why
                                 resources could not be limited, if there are any
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from serving.data_dir import POD_RECORD
from serving.embedded.kubelet.pod.lifecycle import ContainerExit, ContainerRun, recorded_exit, unknown_exit
from serving.system.files import atomic_file, locks, regular_file, removal
from serving.system.processes import ProcessIdentity

SHIM_ERRORS = "shim.err"
_MESSAGE, _NOT_LIMITED = "message.json", "not_limited.json"
_LINE_BYTES = 1024
"""The most that is read of a shim's last line."""


class RunProcesses(NamedTuple):
    """The identities of the processes of a run that do not change while it runs."""

    shim: ProcessIdentity
    main: ProcessIdentity
    """The main process of the container, a child of the shim."""


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a record; None if it is missing or malformed."""
    dated = _read_dated(path)
    return None if dated is None else dated[0]


def _read_dated(path: Path) -> tuple[dict[str, Any], datetime] | None:
    """Return a record and its time, both of one file: a later run or a deletion may replace it meanwhile."""
    try:
        with path.open("rb") as file:
            written_at = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
            record = orjson.loads(file.read())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return (record, written_at) if isinstance(record, dict) else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a record atomically, readable by its owner alone.

    The shim syncs it to the disk at the end of the run: until then it describes processes, which a power
    failure ends too.
    """
    atomic_file.replace(path, orjson.dumps(content), mode=0o600)


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
    def pod_uid(self) -> str:
        """The uid of its Pod."""
        return self.path.parents[2].name

    @property
    def tmp(self) -> Path:
        """Its private /tmp."""
        return self.path / "tmp"

    def begin(self, **details: Any) -> str:
        """Record the run before its start; return the nonce for its shim."""
        removal.remove_tree(self.path)
        self.tmp.mkdir(parents=True, mode=0o700)
        nonce = secrets.token_hex(8)
        write_json(self.path / "launch.json", {"nonce": nonce, **details})
        return nonce

    @property
    def launch(self) -> dict[str, Any]:
        return read_json(self.path / "launch.json") or {}

    def identities(self) -> RunProcesses | None:
        """Return the identities of shim and main process; None until the shim has recorded the start.

        Raises:
            OSError: no descriptor is left, so that the record cannot be read.
        """
        record = read_json(self.path / "started.json")
        if record is None:
            return None
        boot_id = record["boot_id"]
        return RunProcesses(
            shim=ProcessIdentity(boot_id, *record["recorder"]),
            main=ProcessIdentity(boot_id, *record["process"]),
        )

    def cgroups(self) -> list[str]:
        """Return the paths of the run's cgroups; none before its start is recorded."""
        return list((read_json(self.path / "started.json") or {}).get("cgroups", ()))

    def read(self) -> ContainerRun:
        """Return the state of the run."""
        launch, started = self.launch, _read_dated(self.path / "started.json")
        return ContainerRun(
            index=self.index,
            streak=int(launch.get("streak", 0)),
            started_at=None if started is None else started[1],
            exit=self.exit(),
            restart_count=int(launch.get("restart_count", self.index)),
        )

    def exit(self) -> ContainerExit | None:
        """Return the exit of the run; None while it runs."""
        dated = _read_dated(self.path / "exit.json")
        if dated is None:
            return None
        record, finished_at = dated
        if "lost" in record:
            return unknown_exit(finished_at, record["lost"])
        return recorded_exit(
            record["code"],
            record["signal"],
            oom=record["oom"],
            error=record["error"],
            finished_at=finished_at,
            shutdown=(self.path / "shutdown").exists(),
        )

    @property
    def not_limited(self) -> dict[str, str]:
        """Why a resource of the run could not be limited, by resource."""
        return read_json(self.path / _NOT_LIMITED) or {}

    def record_not_limited(self, reasons: Mapping[str, str]) -> None:
        """Record these reasons, by resource, in place of those of an earlier try to start the run; raises
        OSError if the disk is full.
        """
        if reasons:
            write_json(self.path / _NOT_LIMITED, dict(reasons))
        else:
            (self.path / _NOT_LIMITED).unlink(missing_ok=True)

    @property
    def termination_message(self) -> str:
        """The recorded termination message; empty if there is none."""
        return str((read_json(self.path / _MESSAGE) or {}).get("message", ""))

    def record_termination_message(self, message: str) -> None:
        """Record the message of the ended run; raises OSError if the disk is full."""
        write_json(self.path / _MESSAGE, {"message": message})

    def shim_error(self) -> str:
        """Return the last line that an executed shim wrote to its standard error; empty if there is none."""
        try:
            with regular_file.open_binary(self.path / SHIM_ERRORS) as file:
                end = regular_file.read_end(file.fileno(), _LINE_BYTES)
        except OSError:
            return ""
        return next(reversed(end.decode(errors="replace").strip().splitlines()), "")

    def note_shutdown(self) -> None:
        """Record that a shutdown of the node ends the run; on a full disk the end counts as a restart."""
        with contextlib.suppress(OSError):
            (self.path / "shutdown").touch(0o600)

    def declare_lost(self, reason: str) -> None:
        """Record that the end of the run is unknown, unless the end is recorded."""
        if not (self.path / "exit.json").exists():
            write_json(self.path / "exit.json", {"lost": reason})

    def is_abandoned(self) -> bool:
        """Whether no shim holds the lock of the run.

        If the start is not recorded either, `launch.json` is removed: a shim ends unless that file has its
        nonce, so no shim can start the run after this call.
        """
        if not self.path.is_dir():
            return True
        lock = locks.try_lock(self.path / "lock")
        if lock is None:
            return False
        try:
            if not (self.path / "started.json").exists():
                (self.path / "launch.json").unlink(missing_ok=True)
        finally:
            os.close(lock)
        return True


@dataclass(frozen=True)
class PodDirectory:
    """The record of one Pod."""

    path: Path

    @property
    def info(self) -> dict[str, Any]:
        return read_json(self.path / POD_RECORD) or {}

    def save(self, info: dict[str, Any]) -> None:
        """Record the Pod, before its first container starts."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.path / POD_RECORD, info)

    def run(self, container: str, index: int) -> RunDirectory:
        return RunDirectory(self.path / "containers" / container / str(index))

    def runs(self, container: str) -> list[RunDirectory]:
        """Return the recorded runs of a container, oldest first."""
        base = self.path / "containers" / container
        entries = base.iterdir() if base.is_dir() else ()
        indices = sorted(
            int(entry.name) for entry in entries if entry.name.isdigit() and (entry / "launch.json").exists()
        )
        return [RunDirectory(base / str(index)) for index in indices]

    def latest(self) -> Iterator[RunDirectory]:
        """Yield the last run of every container."""
        base = self.path / "containers"
        for entry in sorted(base.iterdir()) if base.is_dir() else ():
            yield from self.runs(entry.name)[-1:]

    def forget_before(self, container: str, index: int) -> None:
        """Remove the /tmp of all runs before `index`, and records and logs of all but the last of them.

        The record and the log of the last one are the `lastState` of the Pod's status and the log of
        `kubectl logs --previous`.
        """
        for run in self.runs(container):
            if run.index < index:
                removal.remove_tree(run.tmp)
            if run.index < index - 1:
                # The older lines first: a removal that is interrupted leaves the newest ones, and the record,
                # by which the next removal finds the run.
                for suffix in (".1", "", ".times", ".1.times"):
                    log = self.path / "logs" / container / f"{run.index}.log{suffix}"
                    log.unlink(missing_ok=True)
                removal.remove_tree(run.path)

    def remove(self) -> None:
        """Remove the Pod's volumes, logs and records."""
        removal.remove_tree(self.path)


def pods(root: Path) -> Iterator[PodDirectory]:
    """Yield every recorded Pod."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(root.iterdir()):
            if entry.is_dir():
                yield PodDirectory(entry)
