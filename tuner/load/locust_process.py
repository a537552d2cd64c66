"""The parent's side of a locust process: start, commands, records, end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from serving.errors import Permanent, Temporary
from serving.system import processes
from serving.system.isolation import namespaces
from serving.system.process_exit import has_ended_within
from tuner.load import wire
from tuner.load.plan import LoadPlan
from tuner.settings import LoadSettings

LOAD_FAILED = "LoadFailed"
STOP_SECONDS = 2.0
"""Longest wait for locust to end by itself before it is killed."""
_READ_BYTES = 1 << 18
_TAIL_BYTES = 2000
"""Bytes of standard error to keep for the message of a failure."""
_MOST_CHARACTERS = 300
"""Most characters of an error text of the process, which runs anybody's code."""
_GAPS_BYTES = 128
"""Bytes of the objects of a `TokenGaps` besides the gaps."""
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Inherited variables; none gives access to the API."""


@dataclass(frozen=True)
class OpenRequests:
    """The intended times of the requests of a process that have not ended, on the monotonic clock."""

    unanswered: Sequence[float]
    silent: Sequence[float]
    """Of these, those of the streams without a token."""
    recorded: int
    """Bytes of `LocustProcess.records` at that moment; later records are of these requests, or of newer
    ones."""


class TokenGaps(NamedTuple):
    """The gaps between the tokens of one stream."""

    done: float
    """End of the stream, in seconds on the monotonic clock."""
    content: bytes
    """Seconds of each gap, as doubles."""


@dataclass
class WindowMemory:
    """The memory of the records and gaps of a window, those of all processes of a run together."""

    most: int
    """Bytes at which the run fails."""
    used: int = 0
    """Bytes that the processes have sent in this window."""


class LocustProcess:
    """A process started by `begin`. It ends with this process, with its socket, or by `end`."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", settings: LoadSettings, memory: WindowMemory
    ) -> None:
        """Take over a started process; `memory` is shared by the processes of its run."""
        self._process = process
        self._identity = processes.identity_of(process.pid)
        self._settings = settings
        self._replies: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._commands = 0
        """Number of commands so far, and so the number of the last one."""
        self._received = 0
        """Number of replies so far: at most one for each command, and one for the plan."""
        self._failure: Permanent | Temporary | None = None
        """Why nothing is read from the process any longer; None while it keeps to the protocol."""
        self._memory = memory
        self._memory_used = 0
        """Part of `memory.used` that is of this process."""
        self._keeps_records = False
        """Whether a window is being measured: others would collect for as long as the API is away."""
        self._tail = b""
        """End of the process's standard error."""
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self.ended = asyncio.Event()
        """Set when the process takes no more commands."""
        self.records = bytearray()
        """In the form of `wire.RECORD`, since the last `keep_records`."""
        self.gaps: list[TokenGaps] = []
        """Of each stream with gaps that ended since the last `keep_records`."""
        self.errors: list[str] = [""]
        """Error texts by the numbers in the records."""

    @classmethod
    async def begin(
        cls,
        plan: LoadPlan,
        url: str,
        settings: LoadSettings,
        *,
        core: int | None,
        user: int | None,
        groups: Sequence[str],
        number: int,
        processes: int,
        memory: WindowMemory,
    ) -> Self:
        """Start one locust process of several; see `ready`.

        Args:
            plan: the requests.
            url: as in `Generator.start`.
            settings: timeouts.
            core: the core to pin it to; None for any.
            user: the user id to give it, which needs root; None for that of this process.
            groups: the cgroups to join.
            number: of this process, from 0.
            processes: number of locust processes.
            memory: of the windows of all processes.

        Raises:
            OSError: the process table is full, or the kernel refuses its namespaces.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.enter_context(ours)
            process = _spawn(theirs.fileno(), core, user, groups)
            unless_started.pop_all()
        locust = cls(process, settings, memory)
        reader, locust._writer = await asyncio.open_connection(sock=ours)
        locust._tasks = [
            asyncio.create_task(locust._read_frames(reader)),
            asyncio.create_task(locust._read_stderr()),
        ]
        locust._writer.write(
            wire.plan_line(
                plan,
                url=url,
                number=number,
                processes=processes,
                timeout=settings.request_timeout,
                most_unanswered=settings.most_unanswered // processes,
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
            # A message that the API refuses, as it is long or has lone surrogates, would never be written.
            wrong = str(reply["wrong"])[:_MOST_CHARACTERS].encode(errors="replace").decode()
            raise Permanent(LOAD_FAILED, wrong)

    async def command(self, *, longest: float = 0.0, **content: float) -> OpenRequests:
        """Send a command, which may take `longest` seconds; return the requests that were open after it.

        `content` has the command's fields in `tuner.load.wire`; without it the command sets no level. Replies
        of earlier commands, which came after their deadline, are dropped.

        Raises:
            Permanent: the window has more records than are kept.
            Temporary: the process died, or did not answer in time.
        """
        assert self._writer is not None
        self._commands += 1
        self._writer.write(wire.line({**content, "number": self._commands}))
        deadline = asyncio.get_running_loop().time() + longest + self._settings.reply_timeout
        while True:
            reply = await self._reply(deadline - asyncio.get_running_loop().time())
            if reply.get("done") == self._commands:
                return OpenRequests(reply["unanswered"], reply["silent"], reply["recorded"])

    async def _reply(self, timeout: float) -> dict[str, Any]:
        try:
            reply = await asyncio.wait_for(self._replies.get(), timeout)
        except TimeoutError as error:
            raise Temporary(LOAD_FAILED, f"locust did not answer within {timeout:.2g} s") from error
        if reply is None:
            raise await self.failure()
        return reply

    async def failure(self) -> Permanent | Temporary:
        """Return the error of a process that has ended, broke the protocol, or sent more than is kept.

        The first has the exit status and the last line of output.
        """
        if self._failure is not None:
            return self._failure
        await self._has_ended()
        await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        code = self._process.poll()
        lines = self._tail.decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
        last = f": {lines[-1][:_MOST_CHARACTERS]}" if lines else ""
        return Temporary(LOAD_FAILED, f"locust ended with {how}{last}")

    def keep_records(self) -> None:
        """Drop the records so far, and keep those from now on until `drop_records`."""
        self.drop_records()
        self._keeps_records = True

    def drop_records(self) -> None:
        """Drop the records so far, and those from now on."""
        self._keeps_records = False
        self.records.clear()
        self.gaps.clear()
        self._memory.used -= self._memory_used
        self._memory_used = 0

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
        """Let the process stop its users within `STOP_SECONDS`; then kill it and its children."""
        try:
            if self._writer is not None:
                self._writer.close()
            await self._has_ended()
        finally:
            # Its children may still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
        await self._has_ended()
        self._process.poll()

    async def _has_ended(self) -> bool:
        """Wait for its end, for at most `STOP_SECONDS`; return whether it has ended."""
        return self._identity is None or await has_ended_within(self._identity, STOP_SECONDS)

    async def _read_frames(self, reader: asyncio.StreamReader) -> None:
        """Take all frames until the process ends; one that sends more than it may has ended for its parent.

        Its code is anybody's, and only the process itself has a limit of memory.
        """
        buffer = bytearray()
        try:
            while data := await reader.read(_READ_BYTES):
                buffer += data
                for kind, content in wire.frames(buffer):
                    self._take(kind, content)
        except ConnectionError:
            pass
        except Permanent as error:
            self._failure = error
        except (ValueError, TypeError, RecursionError, struct.error) as error:
            why = f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]
            self._failure = Temporary(LOAD_FAILED, f"locust was ended: {why}")
        self.ended.set()
        self._replies.put_nowait(None)

    def _take(self, kind: bytes, content: bytes) -> None:
        """Take one frame.

        Raises:
            Permanent: the window has more records than are kept, as it would have at the next try.
            ValueError, TypeError, RecursionError, struct.error: it breaks the protocol.
        """
        if kind == wire.RECORDS:
            if self._keeps_records:
                self.records += content
                self._count(len(content))
        elif kind == wire.TOKEN_GAPS:
            if self._keeps_records:
                done, _ = wire.GAPS.unpack_from(content)
                self.gaps.append(TokenGaps(done, content[wire.GAPS.size :]))
                self._count(_GAPS_BYTES + len(content))
        elif kind == wire.ERROR:
            self.errors.append(content.decode(errors="replace"))
            if len(self.errors) > 1 + wire.MOST_ERROR_TEXTS:
                raise ValueError(f"more than {wire.MOST_ERROR_TEXTS} error texts")
        else:
            self._received += 1
            if self._received > 1 + self._commands:
                raise ValueError(f"{self._received} replies to {self._commands} commands")
            self._replies.put_nowait({**json.loads(content), "recorded": len(self.records)})

    def _count(self, size: int) -> None:
        self._memory_used += size
        self._memory.used += size
        if self._memory.used > self._memory.most:
            raise Permanent(
                LOAD_FAILED,
                f"more than {self._memory.most} bytes of records in a window (tuner.load.window_bytes): the"
                " window is too long for this rate",
            )

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stderr
        )
        with contextlib.closing(transport):
            while data := await reader.read(_READ_BYTES):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]


def _spawn(
    channel: int, core: int | None, user: int | None, groups: Sequence[str]
) -> "subprocess.Popen[bytes]":
    """Start a locust process on the socket `channel`.

    With a user of its own it is the first process of a PID namespace. On a cluster, where the tuner may not
    make one, the tuner's Pod has its own.
    """
    is_isolated = user is not None and namespaces.can_make_pid_namespace()
    parent = os.pidfd_open(os.getpid())
    arguments = (channel, parent, -1 if core is None else core, -1 if user is None else user)
    try:
        with namespaces.NewPidNamespace() if is_isolated else contextlib.nullcontext():
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "tuner.load.driver", *map(str, arguments), *groups],
                pass_fds=(channel, parent),
                start_new_session=True,
                env=_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
    finally:
        os.close(parent)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
