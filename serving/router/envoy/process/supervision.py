"""Keeps Envoy running: starts it again when it has ended, and replaces it when it hangs, not when it is busy.

The gateway asks a thread of both kinds: the main thread over the admin socket, a worker over the private
listener. The successor listens on the public socket of the killed Envoy.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from serving import clock, errors
from serving.backoff import backoff_seconds
from serving.data_dir import DataDir
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.system import processes, procfs
from serving.system.network import sockets
from serving.system.process_exit import has_ended_within

log = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
"""Longest wait for Envoy's end before its record is read again."""
PAUSE_SECONDS = 0.02
"""After Envoy's end or start, before its process is looked up: the kernel may show an ended process for a
moment."""
RETRY_SECONDS = 0.2
"""Between attempts to start an Envoy that cannot be started. Also after the first Envoy that ended without an
answer, before the next start; doubled with each further such end."""
MOST_RETRY_SECONDS = 5.0
"""Bound of the doubled pause."""
REPORTED_ENDS = 2
"""Consecutive ends without an answer from which they are reported."""
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
        self,
        process: EnvoyProcess,
        bootstrap: bytes,
        data_dir: DataDir,
        on_problem: Callable[[str], None],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        """Start nothing yet.

        Args:
            process: the Envoy, which runs.
            bootstrap: the content of its bootstrap file.
            data_dir: has its sockets.
            on_problem: called with each new reason why no traffic flows, and with an empty text once Envoy
                answers again.
            on_start: called when a next Envoy has been started.
        """
        self._process = process
        self._bootstrap = bootstrap
        self._sockets = (data_dir.admin_socket, data_dir.probe_socket)
        self._on_problem = on_problem
        self._on_start = on_start
        self._last_answer: float | None = None
        """Time of the last answer of any Envoy, on the monotonic clock; None before the first answer."""
        self._started = clock.monotonic()
        """When this Envoy was started, on the monotonic clock; of one that ran already, when this object was
        made."""
        self._ran = True
        """Whether the last attempt started an Envoy."""
        self._unanswered_ends = 0
        """Envoys that ended without an answer, since the last answer."""
        self._problem = ""
        self._is_busy = True
        """Whether, at each unanswered question since the last answer, a thread of Envoy was computing."""
        self._system_calls: dict[int, int] = {}
        """By thread id: the system calls of each computing thread at the last unanswered question."""
        self._last_progress: float = self._started
        """The last time at which every computing thread had made a system call since the question before, on
        the monotonic clock."""

    async def run(self) -> None:
        """Keep Envoy running until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restart_ended())
            group.create_task(self._ask())

    async def _restart_ended(self) -> None:
        """Start Envoy whenever none runs."""
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
                self._on_start()
                await asyncio.sleep(PAUSE_SECONDS)  # it may end at once

    async def _back_off(self) -> None:
        """Wait before the start after an Envoy that ended without an answer."""
        self._unanswered_ends += 1
        if self._unanswered_ends >= REPORTED_ENDS:
            code = self._process.exit_code()
            self._set_problem(f"Envoy ends without an answer (exit code {code}); see its log")
        await asyncio.sleep(backoff_seconds(self._unanswered_ends, RETRY_SECONDS, MOST_RETRY_SECONDS))

    def _has_answered(self) -> bool:
        """Whether this Envoy has answered since its start."""
        return self._last_answer is not None and self._last_answer >= self._started

    async def _ask(self) -> None:
        """Ask Envoy every `ASK_SECONDS`, and report or kill it if it does not answer."""
        last_round = clock.monotonic()
        while True:
            answered = await self._answers()
            now = clock.monotonic()
            passed, last_round = now - last_round, now
            if answered:
                self._last_answer, self._is_busy, self._unanswered_ends = now, True, 0
                self._set_problem("")
            elif passed > ANSWER_SECONDS + 2 * ASK_SECONDS:
                self._excuse(passed)  # a round takes less: this process itself did not run
            elif self._last_answer is None or not self._has_answered():
                await self._judge_starting(now)
            else:
                await self._judge_silent(now, self._last_answer)
            await asyncio.sleep(ASK_SECONDS)

    async def _judge_starting(self, now: float) -> None:
        """Report an Envoy that has not answered since its start, and kill it after `START_SECONDS`."""
        # A problem that names its reason is not replaced, and a gateway's first Envoy is merely starting.
        has_reason = self._unanswered_ends >= REPORTED_ENDS or not self._ran
        if not has_reason and self._last_answer is not None and now - self._last_answer > ANSWER_SECONDS:
            self._set_problem(SILENT)
        if now - self._started > START_SECONDS:
            await self._kill(now - self._started)

    async def _judge_silent(self, now: float, last_answer: float) -> None:
        """Report an Envoy that has answered and does not answer now, and kill it if it hangs."""
        silence = now - last_answer
        if silence > ANSWER_SECONDS:
            self._set_problem(SILENT)
        self._is_busy = self._is_busy and self._computes(now)
        if self._is_busy:
            hangs = now - max(last_answer, self._last_progress) > BUSY_SECONDS
        else:
            hangs = silence > HANG_SECONDS
        if hangs:
            await self._kill(silence)

    async def _answers(self) -> bool:
        """Whether both the main thread and a worker answer within `ANSWER_SECONDS`."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return all(await asyncio.gather(*(_answers_at(path) for path in self._sockets)))
        except TimeoutError:
            return False

    def _computes(self, now: float) -> bool:
        """Return whether a thread of Envoy computes.

        If every computing thread has made a system call since the last question, progress is recorded.
        """
        running = self._process.running()
        if running is None:
            return False
        before, self._system_calls = self._system_calls, procfs.computing_threads(running.pid)
        if all(before.get(thread) != calls for thread, calls in self._system_calls.items()):
            self._last_progress = now
        return bool(self._system_calls)

    def _excuse(self, seconds: float) -> None:
        """Do not count as Envoy's silence a time in which this process did not run, and so did not ask."""
        self._started += seconds
        self._last_progress += seconds
        if self._last_answer is not None:
            self._last_answer += seconds

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
