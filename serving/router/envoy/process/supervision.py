"""Keeps Envoy running: starts it again when it has ended, and replaces it when it has hung, not when it is
busy.

Both of Envoy's kinds of threads are asked: the main thread by the admin socket, a worker by the private
listener. The successor listens where the killed Envoy did.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from serving import clock, errors
from serving.data_dir import DataDir
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.system import processes, procfs
from serving.system.network import sockets
from serving.system.process_exit import has_ended_within

log = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
"""Longest wait for Envoy's end before its record is read again."""
PAUSE_SECONDS = 0.02
"""Between Envoy's end or start and the next look: the kernel may show an ended process for a moment."""
RETRY_SECONDS = 0.2
"""Between attempts to start an Envoy that cannot be started, and before the start after an Envoy that ended
without an answer; doubled with each further one."""
MOST_RETRY_SECONDS = 5.0
"""Bound of the doubled pause."""
REPORTED_ENDS = 2
"""Ends without an answer, one after the other, from which they are reported."""
SILENT = "Envoy does not answer"
"""One text for any time of silence: every Inference reports each new text."""
ASK_SECONDS = 0.5
"""Between questions to Envoy."""
ANSWER_SECONDS = 1.0
"""Longest wait for an answer, three times the longest update of Envoy's main thread."""
HANG_SECONDS = 2.0
"""Silence from which a running Envoy counts as hung: two questions without an answer."""
BUSY_SECONDS = 15.0
"""The same for an Envoy that computes all the while, without a system call: under a flood its loop takes
seconds for a round, but reads and writes, and its successor would meet the same flood."""
START_SECONDS = 20.0
"""Silence of an Envoy that has not answered yet: with 2,000 clusters it starts within 3 s."""
KILL_SECONDS = 2.0
"""Longest wait for the kernel to end a killed Envoy."""
_QUESTION = b"GET /ready HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"
"""The admin socket answers with Envoy's state, the private listener with 404: each by a thread that runs."""


class EnvoySupervision:
    """The state of one Envoy, which `run` keeps running."""

    def __init__(
        self, process: EnvoyProcess, bootstrap: bytes, data_dir: DataDir, on_problem: Callable[[str], None]
    ) -> None:
        """Start nothing yet.

        Args:
            process: the Envoy, which runs.
            bootstrap: the content of its bootstrap file.
            data_dir: has its sockets.
            on_problem: called with the reason why no traffic flows when it changes; empty while Envoy
            answers.
        """
        self._process = process
        self._bootstrap = bootstrap
        self._sockets = (data_dir.admin_socket, data_dir.probe_socket)
        self._on_problem = on_problem
        self._answered: float | None = None
        """When an Envoy answered last, on the monotonic clock; None before the first answer."""
        self._started = clock.monotonic()
        """When this Envoy was started."""
        self._ran = True
        """Whether the last attempt started an Envoy."""
        self._unanswered_ends = 0
        """Envoys that ended without an answer, since the last answer."""
        self._problem = ""
        self._is_busy = True
        """Whether Envoy had a runnable thread whenever it did not answer since its last answer."""
        self._calls: dict[int, int] = {}
        """The system calls of its computing threads when it last did not answer."""
        self._progressed: float = self._started
        """When every computing thread had made system calls, on the monotonic clock."""

    async def run(self) -> None:
        """Keep Envoy running until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restart_ended())
            group.create_task(self._ask())

    async def _restart_ended(self) -> None:
        while True:
            running = self._process.running()
            if running is not None:
                await has_ended_within(running.process, CHECK_SECONDS)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            log.error("Envoy is gone (exit code %s): starting it again", self._process.exit_code())
            if self._ran and not self._has_answered():
                await self._back_off()
            self._started = clock.monotonic()
            try:
                self._process.start(self._bootstrap)
                self._ran = True
            except (errors.UserError, OSError) as error:  # also a full process table or disk
                self._ran = False
                log.error("Envoy cannot start: %s", error)  # noqa: TRY400 the message suffices
                self._set_problem(f"Envoy cannot start: {error}")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await asyncio.sleep(PAUSE_SECONDS)  # it may end at once

    async def _back_off(self) -> None:
        """Wait before the start after an Envoy that ended without an answer."""
        self._unanswered_ends += 1
        if self._unanswered_ends >= REPORTED_ENDS:
            code = self._process.exit_code()
            self._set_problem(f"Envoy ends without an answer (exit code {code}); see its log")
        await asyncio.sleep(min(RETRY_SECONDS * 2 ** (self._unanswered_ends - 1), MOST_RETRY_SECONDS))

    def _has_answered(self) -> bool:
        """Whether this Envoy has answered since its start."""
        return self._answered is not None and self._answered >= self._started

    async def _ask(self) -> None:
        before = clock.monotonic()
        while True:
            answered = await self._answers()
            now = clock.monotonic()
            passed, before = now - before, now
            if answered:
                self._answered, self._is_busy, self._unanswered_ends = now, True, 0
                self._set_problem("")
            elif passed > ANSWER_SECONDS + 2 * ASK_SECONDS:
                self._excuse(passed)  # this process itself did not run
            else:
                await self._judge(now)
            await asyncio.sleep(ASK_SECONDS)

    async def _judge(self, now: float) -> None:
        """Report an Envoy that does not answer, and kill it if it hangs."""
        if self._answered is None or not self._has_answered():
            is_reported = self._unanswered_ends >= REPORTED_ENDS or not self._ran
            if not is_reported and self._answered is not None and now - self._answered > ANSWER_SECONDS:
                self._set_problem(SILENT)
            if now - self._started > START_SECONDS:
                await self._kill(now - self._started)
            return
        silence = now - self._answered
        if silence > ANSWER_SECONDS:
            self._set_problem(SILENT)
        self._is_busy = self._is_busy and self._computes(now)
        is_stuck = now - max(self._answered, self._progressed) > BUSY_SECONDS
        if is_stuck if self._is_busy else silence > HANG_SECONDS:
            await self._kill(silence)

    async def _answers(self) -> bool:
        """Whether both threads answer in time."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return all(await asyncio.gather(*(_answers_at(path) for path in self._sockets)))
        except TimeoutError:
            return False

    def _computes(self, now: float) -> bool:
        """Whether a thread computes; notes whether all that do have made system calls since the last look."""
        running = self._process.running()
        if running is None:
            return False
        before, self._calls = self._calls, procfs.computing_threads(running.pid)
        if all(before.get(thread) != calls for thread, calls in self._calls.items()):
            self._progressed = now
        return bool(self._calls)

    def _excuse(self, seconds: float) -> None:
        self._started += seconds
        self._progressed += seconds
        if self._answered is not None:
            self._answered += seconds

    async def _kill(self, silence: float) -> None:
        """Kill the Envoy that runs; `_restart_ended` starts its successor."""
        running = self._process.running()
        if running is None:
            return
        log.error("Envoy %d has not answered for %.1f s: killing it", running.pid, silence)
        processes.send_signal(running.process, signal.SIGKILL)
        await has_ended_within(running.process, KILL_SECONDS)

    def _set_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_problem(problem)


async def _answers_at(path: Path) -> bool:
    """Whether a thread of Envoy answers an HTTP request on this socket."""
    with contextlib.suppress(OSError):
        with sockets.short_path(path) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        try:
            writer.write(_QUESTION)
            return (await reader.readline()).startswith(b"HTTP/1.1 ")
        finally:
            writer.close()
    return False
