"""Shares the GPU of this machine by NVIDIA's MPS: starts its control daemon, one per data directory.

Written from https://docs.nvidia.com/deploy/mps/, and run on an H100 with driver 580. The daemon and all its
clients have one user: clients of another user would wait until those of the first are gone. The daemon
outlives the agent, and ends with `slipway down`.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.pod_spec import gpu_limits
from serving.embedded.pod_spec.volume_mounts import Mount

log = logging.getLogger(__name__)

PROGRAM = "nvidia-cuda-mps-control"
DEVICE = "nvidia0"
"""The first GPU, the only one in use."""
CONTROL_SECONDS = 10.0
"""Longest wait for the daemon to start, or to answer."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 the machine's own: clients and daemon meet there
PING = "get_default_active_thread_percentage"
"""A command without an effect, which shows that the daemon answers."""


def directory_of(data_dir: DataDir) -> Path:
    """Return the directory of the daemon's pipes: a short path, as sockets need, that its user can enter."""
    digest = hashlib.sha256(str(data_dir.root.resolve()).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"slipway-mps-{digest}"


def end(data_dir: DataDir) -> None:
    """End the daemon, if it runs; its remaining clients lose the GPU."""
    directory = directory_of(data_dir)
    if directory.is_dir():
        owner = directory.lstat()
        user = None if owner.st_uid == os.geteuid() else owner.st_uid
        Mps(directory, user).send("quit")


@dataclass(frozen=True)
class MpsAccess:
    """Environment and mounts of a client's container."""

    env: dict[str, str]
    mounts: tuple[Mount, ...]


class Mps:
    """The daemon; the first container with a GPU starts it, which blocks for seconds."""

    def __init__(self, directory: Path, user: int | None, devices: Path = Path("/dev")) -> None:
        """`user` is the user id, and the group id, of its clients; None for those of this process."""
        self._directory, self.user, self._devices = directory, user, devices
        self._lock = threading.Lock()

    def access(self) -> MpsAccess:
        """Start the daemon if it does not run, and return the access of its clients.

        Raises:
            errors.Temporary: `NoGpu`, no GPU; `NoMps`, the daemon is not installed or does not start.
        """
        if not (self._devices / DEVICE).exists():
            message = f"this machine has no NVIDIA GPU: there is no {self._devices / DEVICE}"
            raise errors.Temporary("NoGpu", message)
        with self._lock:
            self._make_directories()
            if self.send(PING) is None:
                self._start()
        pipes = str(self._directory / "pipe")
        if self.user is None:
            return MpsAccess({gpu_limits.PIPES_ENV: pipes}, ())
        mounts = (
            Mount(gpu_limits.PIPES, pipes, read_only=False),
            Mount(SHARED_MEMORY, SHARED_MEMORY, read_only=False),
        )
        return MpsAccess({gpu_limits.PIPES_ENV: gpu_limits.PIPES}, mounts)

    def _make_directories(self) -> None:
        owner = os.geteuid() if self.user is None else self.user
        for directory in (self._directory, self._directory / "pipe", self._directory / "log"):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            status = directory.lstat()
            # This process may own it: an agent that was killed after `mkdir` has not set the owner.
            if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (owner, os.geteuid()):
                raise errors.Temporary("NoMps", f"{directory} is another user's: remove it")
            if status.st_uid != owner:
                os.chown(directory, owner, owner)

    def _start(self) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise errors.Temporary("NoMps", f"{PROGRAM} is not installed: it comes with NVIDIA's driver")
        try:
            done = self._run([program, "-d"], "")
        except subprocess.TimeoutExpired as error:
            raise errors.Temporary(
                "NoMps", f"{PROGRAM} did not start within {CONTROL_SECONDS:g} s"
            ) from error
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise errors.Temporary("NoMps", f"{PROGRAM} did not start: {reason}")
        log.info("started %s in %s", PROGRAM, self._directory)

    def send(self, command: str) -> str | None:
        """Send the daemon a command and return its answer; None if no daemon answers."""
        program = shutil.which(PROGRAM)
        if program is None:
            return None
        try:
            done = self._run([program], f"{command}\n")
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def _run(self, command: list[str], stdin: str) -> "subprocess.CompletedProcess[str]":
        """Run the control program as the user of the clients, with this text as its standard input."""
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            # The daemon passes this GPU alone to its clients, which number it from 0.
            "CUDA_VISIBLE_DEVICES": DEVICE.removeprefix("nvidia"),
            gpu_limits.PIPES_ENV: str(self._directory / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self._directory / "log"),
        }
        return subprocess.run(
            command,
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            timeout=CONTROL_SECONDS,
            check=False,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            cwd="/",
            start_new_session=True,
        )
