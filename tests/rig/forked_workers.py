"""Runs the collected tests in forked processes: `pytest --workers N [--background FOLDER] [--retry-alone]`.

A fork has the imported test modules already. A new interpreter for each worker, as pytest-xdist starts them,
collects all tests again: 42 s of CPU time on a clean checkout, 24 s on a used one.
A worker runs whole files, in the order of collection, as fixtures of a module are started once for each
worker. The background worker runs files of a folder from the last one on, at a lower priority: tests that
compute fill the time in which the others wait.
With `--retry-alone`, tests that failed run once more when nothing runs beside them: a machine of continuous
integration that stalls for seconds breaks limits that hold elsewhere. The summary shows their first failure.
"""

import gc
import itertools
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import pytest
import threadpoolctl
from _pytest._io import TerminalWriter
from _pytest.config import create_terminal_writer

from tests.rig.machine.addresses import WORKER

RETRIED = "retried"
"""Outcome of the first run of a test that runs once more."""
MOST_RETRIES = 10
"""Tests that run once more: where more fail, the reason is not a stall of the machine."""
NICENESS = 5
"""Niceness of the background worker: a third of the processor time of the others, when that is scarce."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="run test files in N forked processes; 0: in this one",
    )
    parser.addoption(
        "--background",
        type=Path,
        metavar="FOLDER",
        help="another process, of a lower priority, runs the last files of FOLDER",
    )
    parser.addoption(
        "--retry-alone",
        action="store_true",
        help="with --workers: tests that fail run once more, with no other test beside them",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without the cycle collector: it would walk all modules at each import, and free nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtestloop(session: pytest.Session) -> object:
    """Run the tests in workers, if the command line asks for some."""
    count = session.config.getoption("workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    background = session.config.getoption("background")
    _Workers(session, count, background and background.resolve()).run()
    return True


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Count the first failure of a test that runs once more apart from the failures."""
    return ("retried", "R", "RETRIED") if report.outcome == RETRIED else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show the first failures of the tests that ran once more."""
    for report in terminalreporter.getreports(RETRIED):
        terminalreporter.write_sep("_", f"{report.nodeid} ran once more, alone, after this failure")
        report.toterminal(terminalreporter._tw)
        for title, text in report.sections:
            terminalreporter.write_sep("-", title)
            terminalreporter.write_line(text)


@dataclass
class _Worker:
    """A forked process, from the view of the session."""

    pid: int
    connection: Connection
    is_background: bool
    remaining: list[pytest.Item]
    """Tests that it has been sent and that have not ended; the first one runs."""


class _Workers:
    """The forked processes of a session, which distributes files and collects reports."""

    def __init__(self, session: pytest.Session, count: int, background: Path | None) -> None:
        self._session = session
        self._hook = session.config.hook
        self._count = count
        self._background = background
        by_file = itertools.groupby(session.items, key=lambda item: item.path)
        self._files = deque(list(items) for _, items in by_file)
        self._numbers = itertools.count()
        self._workers: list[_Worker] = []
        self._failures: dict[str, list[pytest.TestReport]] | None = None
        """Reports of tests that may run once more, by their ids; None: each is the test's result."""
        if session.config.getoption("retry_alone") and not session.config.option.maxfail:
            self._failures = {}

    def run(self) -> None:
        terminal: Any = self._session.config.pluginmanager.getplugin("terminalreporter")
        terminal.showfspath = False  # reports of several files alternate
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            self._run_files()
            if self._failures:
                self._retry()
                self._run_files()
        finally:
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGINT)
                worker.connection.close()  # ends one that has swallowed SIGINT and waits for a file
            for worker in self._workers:
                os.waitpid(worker.pid, 0)

    def _run_files(self) -> None:
        while self._files or self._workers:
            self._fork_missing()
            self._receive()
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)

    def _retry(self) -> None:
        """Have one worker run the failed tests, unless there are many."""
        failures, self._failures = self._failures or {}, None
        items = [item for item in self._session.items if item.nodeid in failures]
        is_retried = len(failures) <= MOST_RETRIES and len(items) == len(failures)
        for report in itertools.chain.from_iterable(failures.values()):
            if is_retried:
                report.outcome = RETRIED  # type: ignore[assignment]
            self._hook.pytest_runtest_logreport(report=report)
        if is_retried:
            self._count, self._background = 1, None
            self._files.extend(
                list(group) for _, group in itertools.groupby(items, key=lambda item: item.path)
            )

    def _fork_missing(self) -> None:
        """Fork workers until there are as many as there should be, or no file is left for another one."""
        ordinary = sum(not worker.is_background for worker in self._workers)
        for _ in range(min(self._count - ordinary, len(self._files))):
            self._workers.append(self._fork(is_background=False))
        if not any(worker.is_background for worker in self._workers) and self._has_background_file():
            self._workers.append(self._fork(is_background=True))

    def _has_background_file(self) -> bool:
        folder = self._background
        return bool(folder and self._files and self._files[-1][0].path.is_relative_to(folder))

    def _fork(self, *, is_background: bool) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        number = next(self._numbers)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self._workers:
                other.connection.close()
            os.nice(NICENESS if is_background else 0)
            _run_worker(self._session, theirs, number)
        theirs.close()
        worker = _Worker(pid, ours, is_background, [])
        self._send_file(worker)
        return worker

    def _send_file(self, worker: _Worker) -> None:
        """Send the positions of the next file's tests; none: the worker ends after its file."""
        tests: list[pytest.Item] = []
        if worker.is_background and self._has_background_file():
            tests = self._files.pop()
        elif self._files and not worker.is_background:
            tests = self._files.popleft()
        first = self._session.items.index(tests[0]) if tests else 0
        worker.connection.send(range(first, first + len(tests)))
        worker.remaining += tests

    def _receive(self) -> None:
        by_connection = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(by_connection)):
            worker = by_connection[cast("Connection", connection)]
            try:
                kind, value = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                self._note_end(worker)
            else:
                self._handle(worker, kind, value)

    def _handle(self, worker: _Worker, kind: str, value: Any) -> None:
        config = self._session.config
        match kind:
            case "report":
                report = self._hook.pytest_report_from_serializable(config=config, data=value)
                self._log(report)
            case "warning":
                message, when, nodeid, location = value
                warning = warnings.WarningMessage(message, UserWarning, "", 0)
                self._hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": warning, "when": when, "nodeid": nodeid, "location": location}
                )
            case "ended":
                del worker.remaining[0]
            case "next":
                self._send_file(worker)
            case "error":
                self._fail(f"worker {worker.pid}", value)

    def _note_end(self, worker: _Worker) -> None:
        """Fail the test that ended its worker, and send the worker's other tests to another one."""
        self._workers.remove(worker)
        worker.connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.remaining:
            item, *others = worker.remaining
            self._fail(item.nodeid, f"the worker has ended in this test, with status {status}")
            by_file = itertools.groupby(others, key=lambda item: item.path)
            self._files.extendleft(reversed([list(items) for _, items in by_file]))
        elif status:
            self._fail(f"worker {worker.pid}", f"it has ended with status {status}")

    def _fail(self, nodeid: str, text: str) -> None:
        self._log(pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, "failed", text, "call"))

    def _log(self, report: pytest.TestReport) -> None:
        """Report a result, unless it is a failure of a test that may run once more."""
        if report.failed and self._failures is not None:
            self._failures.setdefault(report.nodeid, []).append(report)
        else:
            self._hook.pytest_runtest_logreport(report=report)


class _Reporting:
    """A worker's terminal reporter, which sends its reports and warnings to the session."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    @property
    def _tw(self) -> TerminalWriter:
        """The writer that plugins ask for, as pytest-timeout does for its stacks: the output of the test."""
        return create_terminal_writer(self._config, sys.stdout)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        text = warnings.formatwarning(
            warning_message.message,
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        self._connection.send(("warning", (text, when, nodeid, location)))


def _run_worker(session: pytest.Session, connection: Connection, number: int) -> None:
    """Run files until there is none, and end the process."""
    status = 1
    try:
        _separate(session, connection, number)
        positions = deque(connection.recv())
        while positions:
            item = session.items[positions.popleft()]
            if not positions:  # fixtures of a package end only if the next file does not use them
                connection.send(("next", None))
                positions.extend(connection.recv())
            following = session.items[positions[0]] if positions else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            connection.send(("ended", None))
        status = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001 reported, as nobody else handles it
        connection.send(("error", traceback.format_exc()))
    finally:
        os._exit(status)


def _separate(session: pytest.Session, connection: Connection, number: int) -> None:
    """Give this process output, a directory, a name, a reporter and one thread of its own."""
    config: Any = session.config
    os.environ[WORKER] = str(number)
    threadpoolctl.threadpool_limits(1)  # threads of several workers would spin for each other on few cores
    plugins = config.pluginmanager
    capturing = plugins.getplugin("capturemanager")
    if capturing.is_globally_capturing():
        capturing.stop_global_capturing()
        capturing.start_global_capturing()
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(_Reporting(session.config, connection), "terminalreporter")
    directories = config._tmp_path_factory
    directories._basetemp = directories.getbasetemp() / f"worker{number}"
    directories._basetemp.mkdir()
