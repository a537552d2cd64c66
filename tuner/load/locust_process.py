"""The parent's side of a locust process: start, commands, records, end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Self

from serving.errors import Permanent, Temporary
from tuner.load import wire
from tuner.load.plan import LoadPlan
from tuner.settings import LoadSettings

LOAD_FAILED = "LoadFailed"
_READ = 1 << 18
_TAIL = 2000
"""Bytes of standard error to keep for the message of a failure."""
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Inherited variables; none gives access to the API."""


class LocustProcess:
    """A process started by `begin`. It ends with this process, with its socket, or by `end`."""

    def __init__(self, process: asyncio.subprocess.Process, settings: LoadSettings) -> None:
        """Take over a started process."""
        self._process = process
        self._settings = settings
        self._replies: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._commands = 0
        self._tail = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self.ended = asyncio.Event()
        """Set when the process takes no more commands."""
        self.records = bytearray()
        """In the form of `wire.RECORD`, since the last `forget`."""
        self.gaps: list[tuple[float, bytes]] = []
        """End of each stream, with the gaps between its tokens as doubles."""
        self.errors: list[str] = [""]
        """Error texts by the numbers in the records."""

    @classmethod
    async def begin(
        cls, plan: LoadPlan, url: str, settings: LoadSettings, *, core: int | None, share: tuple[int, int]
    ) -> Self:
        """Start process `share[0]` of `share[1]`, pinned to the core if one is given; see `ready`."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.enter_context(ours)
            arguments = (theirs.fileno(), os.getpid(), -1 if core is None else core, settings.user)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "tuner.load.driver",
                *map(str, arguments),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=_environment(),
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            unless_started.pop_all()
        locust = cls(process, settings)
        reader, locust._writer = await asyncio.open_connection(sock=ours)
        locust._tasks = [
            asyncio.create_task(locust._read_frames(reader)),
            asyncio.create_task(locust._read_stderr()),
        ]
        locust._writer.write(
            wire.plan_line(
                plan,
                url=url,
                share=share,
                timeout=settings.request_timeout,
                most_unanswered=settings.most_unanswered // share[1],
            )
        )
        return locust

    async def ready(self) -> None:
        """Wait until the process takes commands.

        Raises:
            Permanent: the locustfile cannot be run.
            Temporary: the process died, or did not start in time.
        """
        reply = await self._reply(self._settings.start_timeout)
        if "wrong" in reply:
            raise Permanent(LOAD_FAILED, reply["wrong"])

    async def command(self, *, patience: float = 0.0, **content: float) -> list[float]:
        """Send a command, and return the intended times of the unanswered requests.

        Raises:
            Temporary: the process died, or did not answer in time.
        """
        assert self._writer is not None
        self._commands += 1
        self._writer.write(wire.line({**content, "number": self._commands, "patience": patience}))
        deadline = asyncio.get_running_loop().time() + patience + self._settings.reply_timeout
        while True:
            reply = await self._reply(deadline - asyncio.get_running_loop().time())
            if reply.get("done") == self._commands:
                return list(reply["unanswered"])

    async def _reply(self, timeout: float) -> dict[str, Any]:
        try:
            reply = await asyncio.wait_for(self._replies.get(), timeout)
        except TimeoutError as error:
            raise Temporary(LOAD_FAILED, f"locust did not answer within {timeout:.2g} s") from error
        if reply is None:
            raise await self.failure()
        return reply

    async def failure(self) -> Temporary:
        """Return the error of a process that has ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), self._settings.stop_timeout)
        await asyncio.wait(self._tasks, timeout=self._settings.stop_timeout)
        code = self._process.returncode
        lines = self._tail.decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
        return Temporary(LOAD_FAILED, f"locust ended with {how}" + (f": {lines[-1][:300]}" if lines else ""))

    def forget(self) -> None:
        """Drop the records so far."""
        self.records.clear()
        self.gaps.clear()

    def busy_seconds(self) -> float:
        """Return the seconds that the process ran or waited for its core; 0 if it has ended.

        Waiting for a core delays requests as much as using it. Source: proc(5), /proc/pid/schedstat, of the
        one thread that does all the work.
        """
        try:
            ran, waited, _ = Path(f"/proc/{self._process.pid}/schedstat").read_text().split()
        except OSError:
            return 0.0
        return (int(ran) + int(waited)) / 1e9

    async def end(self) -> None:
        """Let the process stop its users within `stop_timeout`; then kill it and its children."""
        try:
            if self._writer is not None:
                self._writer.close()
            await asyncio.wait_for(self._process.wait(), self._settings.stop_timeout)
        except TimeoutError:
            pass
        finally:
            # Its children may still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
        await self._process.wait()

    async def _read_frames(self, reader: asyncio.StreamReader) -> None:
        buffer = bytearray()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_READ):
                buffer += data
                for kind, content in wire.frames(buffer):
                    self._take(kind, content)
        self.ended.set()
        self._replies.put_nowait(None)

    def _take(self, kind: bytes, content: bytes) -> None:
        if kind == wire.RECORDS:
            self.records += content
        elif kind == wire.TOKEN_GAPS:
            self.gaps.append((wire.GAPS.unpack_from(content)[0], content[wire.GAPS.size :]))
        elif kind == wire.ERROR:
            self.errors.append(content.decode(errors="replace"))
        else:
            self._replies.put_nowait(json.loads(content))

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_READ):
            self._tail = (self._tail + data)[-_TAIL:]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
