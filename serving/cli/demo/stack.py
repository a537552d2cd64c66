"""The demo's own `slipway up`: starts it as a process, and stops it with everything that it started."""

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.kubelet import shutdown
from serving.embedded.supervisor import supervisor
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.settings import DEFAULTS
from serving.system import processes

READY_SECONDS = 60.0
STOP_SECONDS = 90.0
"""Longest wait for the end of `up`: draining may take 30 s, and stopping the components another 30 s."""
POLL_SECONDS = 0.1


class Stack:
    """One `up` and its data directory, which this class removes."""

    def __init__(self, where: DataDir) -> None:
        self.where = where
        self.kept = False
        """Whether the caller, instead of calling `end`, leaves `up` and the data."""
        self._up: asyncio.subprocess.Process | None = None

    def keep(self) -> None:
        """Tell the caller of `end` to leave `up` running."""
        self.kept = True

    async def start(self) -> None:
        """Start `up` in a session of its own, so that Ctrl-C reaches it through this program alone.

        The first `up` of a directory picks free ports, which later ones keep.

        Raises:
            errors.UserError: `up` does not start; the message has its output.
        """
        self.where.logs.mkdir(parents=True, exist_ok=True)
        output = self.where.logs / "up.out"
        with output.open("wb") as sink:
            self._up = await asyncio.create_subprocess_exec(
                *_slipway("up", self.where),
                *(() if self.where.ports.exists() else ("--port", "0", "--gateway-port", "0")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        deadline = clock.monotonic() + READY_SECONDS
        while b"Slipway is up" not in output.read_bytes():
            if self._up.returncode is not None or clock.monotonic() > deadline:
                raise errors.UserError(f"slipway up did not start:\n{output.read_text(errors='replace')}")
            await asyncio.sleep(POLL_SECONDS)

    async def end(self) -> None:
        """Stop `up`, and what has survived it because it was forced or killed; then remove the data."""
        if self._up is not None and self._up.returncode is None:
            self._up.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._up.wait()
            if self._up.returncode is None:
                self._up.kill()
                await self._up.wait()
        if self._is_anything_left():
            down = await asyncio.create_subprocess_exec(
                *_slipway("down", self.where),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            await down.wait()
        await asyncio.to_thread(shutil.rmtree, self.where.root, True)

    def _is_anything_left(self) -> bool:
        """Whether a component, a replica or Envoy runs, or may run, as /proc cannot be read."""
        try:
            return (
                any(processes.read_running(self.where.identity(name)) for name in supervisor.COMPONENTS)
                or bool(shutdown.running(self.where))
                or EnvoyProcess(self.where, DEFAULTS.gateway).running() is not None
            )
        except OSError:
            return True


def _slipway(command: str, where: DataDir) -> list[str]:
    return [sys.executable, "-m", "serving.app", command, "--data-dir", str(where.root)]


def command_name() -> str:
    """Return how to call `slipway` here: with its directory where it is not on the path."""
    if shutil.which("slipway"):
        return "slipway"
    command = Path(sys.executable).parent / "slipway"
    return str(command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command)
