"""The Envoy process, which outlives the gateway that started it and is adopted by the next one.

Envoy has its own session and append-only log, and no pipe to the gateway, so that SIGKILL of the gateway (or
of `up`) stops no traffic. The next gateway recognises it by boot id, pid and start time.
"""

import contextlib
import hashlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from serving import errors
from serving.data_dir import DataDir
from serving.router.envoy.process import public_socket
from serving.router.envoy.process.binary import find_envoy
from serving.router.plan.service import socket_name
from serving.settings import GatewaySettings
from serving.system import huge_pages, processes, procfs
from serving.system.files import run_files
from serving.system.network import sockets
from serving.system.network.kept_sockets import KeptSockets
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunningEnvoy:
    """One running Envoy, and the digest of its bootstrap."""

    process: ProcessIdentity
    bootstrap: str

    @property
    def pid(self) -> int:
        return self.process.pid


class EnvoyProcess:
    """The one Envoy of a data directory."""

    def __init__(self, data_dir: DataDir, settings: GatewaySettings, kept: KeptSockets | None = None) -> None:
        """Start nothing yet.

        Args:
            data_dir: of the gateway.
            settings: the gateway's.
            kept: holds the socket on which Envoy listens; None: Envoy binds a socket, which ends with Envoy.
        """
        self._dir = data_dir.gateway
        self._bootstrap = self._dir / "bootstrap.json"
        self._log = data_dir.logs / "envoy.log"
        self._sockets = [self._dir / f"{name}.sock" for name in ("admin", "probe", "changes")]
        self._sockets.append(data_dir.activator / socket_name(""))  # as long as that of any cluster
        self._settings = settings
        self._kept = kept
        self._child: subprocess.Popen[bytes] | None = None

    def running(self) -> RunningEnvoy | None:
        """Return the Envoy that runs on this directory, from any gateway."""
        if self._child is not None:
            self._child.poll()  # reaps a zombie
        record = processes.read_running(self._dir / "envoy.json")
        if record is None:
            return self._unrecorded()
        process, fields = record
        return RunningEnvoy(process, str(fields.get("bootstrap")))

    def _unrecorded(self) -> RunningEnvoy | None:
        """Find an Envoy of this directory whose starter was killed before it recorded its identity."""
        bootstrap = os.fsencode(self._bootstrap)
        for pid in procfs.processes():
            proc = Path(f"/proc/{pid}")
            try:
                if proc.stat().st_uid != os.geteuid():
                    continue
                arguments = (proc / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last by the option hidepid
                continue
            if bootstrap in arguments and b"--config-path" in arguments:
                process = processes.identity_of(pid)
                if process is not None:
                    return RunningEnvoy(process, digest(self._bootstrap.read_bytes()))
        return None

    def start(self, bootstrap: bytes) -> RunningEnvoy:
        """Start Envoy and record its identity.

        Raises:
            errors.UserError: no Envoy, the port is taken, or the directory's path is too long for sockets.
        """
        public = self._public_socket()
        for path in self._sockets:
            if len(os.fsencode(path)) > sockets.SOCKET_PATH_BYTES:
                raise errors.UserError(f"{path}: too long for a Unix socket; choose a shorter --data-dir")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        run_files.ensure(self._bootstrap, bootstrap, mode=0o600)
        program = find_envoy()
        environment = dict(os.environ)
        with contextlib.ExitStack() as opened:
            output = opened.enter_context(self._log.open("ab"))
            executable, descriptors = opened.enter_context(self._executable(program))
            if public is not None:
                library = opened.enter_context(public_socket.library())
                environment |= public_socket.environment(public, library)
                descriptors += [public, library]
            self._child = subprocess.Popen(
                [
                    program,
                    *("--config-path", str(self._bootstrap)),
                    "--disable-hot-restart",
                    *("--drain-strategy", "immediate"),  # by default over 10 minutes, longer than any drain
                    *("--concurrency", str(self._settings.concurrency)),
                    *("--log-level", "warning"),
                ],
                executable=executable,
                env=environment,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
            )
        envoy = RunningEnvoy(
            # An Envoy that has ended already gets an identity that no process has.
            processes.identity_of(self._child.pid) or ProcessIdentity("", self._child.pid, 0),
            digest(bootstrap),
        )
        record = processes.encoded(envoy.process, bootstrap=envoy.bootstrap)
        run_files.write(self._dir / "envoy.json", record)
        return envoy

    def keep_socket(self, running: RunningEnvoy) -> None:
        """Keep the public socket of an Envoy that another gateway started, if this process may copy it."""
        if self._kept is not None:
            public_socket.adopt(self._kept, running.process, self._settings.host, self._settings.port)

    @contextlib.contextmanager
    def _executable(self, program: str) -> Iterator[tuple[str, list[int]]]:
        """Yield the path to execute for a program, and the descriptors that it needs."""
        descriptor = self._in_huge_pages(program)
        if descriptor is None:
            yield program, []
            return
        path = f"/proc/self/fd/{descriptor}"
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            # The kernel names the process after the last part of the path: `envoy`, not a number. Without the
            # link, on a full disk for example, Envoy runs under the number.
            with contextlib.suppress(OSError):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-envoy-"))
                link = Path(folder, "envoy")
                link.symlink_to(path)
                link.stat()
                path = str(link)
            yield path, [descriptor]

    def _in_huge_pages(self, program: str) -> int | None:
        """Return a descriptor of the program's copy in huge pages; None if they are off or impossible."""
        if not self._settings.huge_pages:
            return None
        try:
            return huge_pages.program(program)
        except OSError as error:
            log.info("Envoy's code is in small pages: %s", error.strerror)
            return None

    def exit_code(self) -> int | None:
        """Return the exit code of the Envoy that this process started; None without one, or while it runs."""
        return self._child.poll() if self._child is not None else None

    def _public_socket(self) -> int | None:
        """Return the descriptor on which Envoy listens; None if Envoy binds a socket of its own.

        Raises:
            errors.UserError: the port is taken, or not resolved.
        """
        host, port = self._settings.host, self._settings.port
        if port == 0:
            raise errors.UserError("the gateway's port must be resolved before it starts")
        try:
            if self._kept is not None:
                return public_socket.descriptor(self._kept, host, port)
            sockets.try_shared_port(host, port)
        except OSError as error:
            where = f"{host}:{port}"
            raise errors.UserError(
                f"the gateway cannot listen on {where}: {error.strerror}; choose another --gateway-port"
            ) from error
        return None


def digest(bootstrap: bytes) -> str:
    """Return the digest of a bootstrap; an Envoy with another bootstrap cannot be adopted."""
    return hashlib.sha256(bootstrap).hexdigest()
