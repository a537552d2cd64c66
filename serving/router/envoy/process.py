"""Envoy as a process that outlives its starter: start, find again, stop.

It has a session and an append-only log of its own, and no pipe to us, so that SIGKILL of the gateway
process (or of `up`) stops no traffic. Who comes next knows it by (boot id, pid, start time).
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from serving import errors
from serving.data_dir import DataDir
from serving.router.envoy.binary import find_envoy
from serving.router.plan.service import Cluster
from serving.settings import GatewaySettings

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BOOT_TIME = re.compile(r"^btime (\d+)$", re.MULTILINE)
SOCKET_PATH_BYTES = 107
"""sockaddr_un.sun_path less its NUL: unix(7)."""


@dataclass(frozen=True)
class Identity:
    """One running Envoy, and the digest of what it was started with."""

    boot_id: str
    pid: int
    start_time: str
    bootstrap: str

    def alive(self) -> bool:
        """Say whether this very process still runs (a zombie does not)."""
        return self.boot_id == _boot_id() and _start_time(self.pid) == self.start_time

    def started(self) -> float:
        """Return when it was started, in unix seconds by today's clock: proc(5)."""
        boot = _BOOT_TIME.search(Path("/proc/stat").read_text())
        since = int(self.start_time) / os.sysconf("SC_CLK_TCK")
        return since + (int(boot[1]) if boot is not None else 0)


class EnvoyProcess:
    """The one Envoy of a data directory."""

    def __init__(self, data_dir: DataDir, settings: GatewaySettings) -> None:
        self._dir = data_dir.gateway
        self._bootstrap = self._dir / "bootstrap.json"
        self._log = data_dir.logs / "envoy.log"
        self._sockets = [self._dir / f"{name}.sock" for name in ("admin", "probe", "changes")]
        self._sockets.append(data_dir.activator / Cluster("", ()).socket)
        self._settings = settings
        self._child: subprocess.Popen[bytes] | None = None

    def running(self) -> Identity | None:
        """Return the Envoy that runs on this directory, whoever started it."""
        if self._child is not None:
            self._child.poll()  # reaps it, so that it is not a zombie
        try:
            identity = Identity(**json.loads((self._dir / "envoy.json").read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return self._unrecorded()
        return identity if identity.alive() else self._unrecorded()

    def _unrecorded(self) -> Identity | None:
        """Find an Envoy of this directory whose starter was killed before it wrote down who it is."""
        wanted = os.fsencode(self._bootstrap)
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (proc / "cmdline").read_bytes().split(b"\0")
                ours = proc.stat().st_uid == os.geteuid()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if ours and wanted in arguments and b"--config-path" in arguments:
                pid = int(proc.name)
                found = Identity(
                    _boot_id(), pid, _start_time(pid) or "", digest(self._bootstrap.read_bytes())
                )
                if found.alive():
                    return found
        return None

    def start(self, bootstrap: bytes) -> Identity:
        """Start Envoy and write down who it is.

        Raises:
            errors.UserError: no Envoy, the port is taken, or the directory's path is too long for sockets.
        """
        self._check_port()
        for path in self._sockets:
            if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
                raise errors.UserError(f"{path}: too long for a Unix socket; choose a shorter --data-dir")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._bootstrap, bootstrap)
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [
                    find_envoy(), "--config-path", str(self._bootstrap), "--disable-hot-restart",
                    "--concurrency", str(self._settings.concurrency), "--log-level", "warning",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            )  # fmt: skip
        start_time = _start_time(self._child.pid) or ""
        identity = Identity(_boot_id(), self._child.pid, start_time, digest(bootstrap))
        write_atomically(self._dir / "envoy.json", json.dumps(asdict(identity)).encode())
        return identity

    def exit_code(self) -> int | None:
        """Return how our own child ended, None while it runs or when it is not our child."""
        return self._child.poll() if self._child is not None else None

    def _check_port(self) -> None:
        if self._settings.port == 0:
            raise errors.UserError("the gateway's port must be resolved before it starts")
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._settings.host, self._settings.port))
            except OSError as error:
                where = f"{self._settings.host}:{self._settings.port}"
                raise errors.UserError(
                    f"the gateway cannot listen on {where}: {error.strerror}; choose another --gateway-port"
                ) from error


def terminate(identity: Identity, number: signal.Signals = signal.SIGTERM) -> None:
    """Signal this very process, and no other that has its number now."""
    if identity.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, number)


def digest(bootstrap: bytes) -> str:
    """Name a bootstrap: an Envoy that was started with another cannot be adopted."""
    return hashlib.sha256(bootstrap).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
    temporary.replace(path)


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def _start_time(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat, or None where the process is gone or a zombie: proc(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
