"""Fits the forecasts' regressions in a separate process, one target after another, every half an hour.

statsmodels takes a second to import and 120 MB of memory. A fit takes a tenth of a second of a core, during
which a tick would wait. So the process lives only during a round. It ends with its parent, and the next fit
restarts a process that died.
"""

import asyncio
import logging
import multiprocessing
import threading
from array import array
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from autoscaler.forecast.fit import LEAST_BINS, Fit, fit
from autoscaler.state.target_state import TargetState
from serving import errors
from serving.kube import Key
from serving.system import background_process

log = logging.getLogger(__name__)

REFIT_SECONDS = 1800.0
"""Seconds between rounds: the coefficients of two weeks of load change slowly."""
FIRST_SECONDS = 300.0
"""Seconds before the first round: a start of the autoscaler has more urgent work, and earlier fits are
stored."""
PAUSE_SECONDS = 5.0
"""Most seconds between two fits, so that fits take a few percent of a core. With more than 360 targets the
pause is shorter."""
TIMEOUT_SECONDS = 60.0
"""Seconds for one fit and the import of statsmodels: fifty times their duration on an idle machine."""


class Fitting:
    """Fits the regressions of every target whose policy uses forecasts and has enough history."""

    def __init__(
        self,
        state: Mapping[Key, TargetState],
        *,
        first: float = FIRST_SECONDS,
        every: float = REFIT_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Create the worker; its process starts with the first fit.

        Args:
            state: the states of the targets, by Autoscaler, read at each round.
            first: seconds before the first round.
            every: seconds between the starts of two rounds.
            timeout: seconds for one fit.
        """
        self._states = state
        self._first, self._every = first, every
        self._worker = Worker(timeout)

    async def run(self) -> None:
        """Fit every target that is due once in each round, until cancelled."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._first)
        while True:
            began = loop.time()
            try:
                await self._round()
            finally:
                self._worker.end()
            await asyncio.sleep(max(self._every - (loop.time() - began), 0.0))

    async def _round(self) -> None:
        """Fit the targets that are due, with pauses between the fits."""
        due = [key for key, state in self._states.items() if _is_due(state)]
        for key in due:
            state = self._states.get(key)
            if state is None or state.sizer is None:
                continue
            unit = state.sizer.forecaster.unit
            try:
                fitted = await self._worker.fit(state.sizer.history.levels)
            except errors.Unavailable as error:
                log.warning("the forecast of %s keeps its previous fit: %s", key, error)
                continue
            # Another spec may have replaced the sizer, not its history; another capacity, the levels.
            if state.sizer is not None and state.sizer.forecaster.unit == unit:
                state.sizer.set_fit(fitted)
            await asyncio.sleep(min(PAUSE_SECONDS, self._every / len(due)))


class Worker:
    """The process that fits, started with the first fit."""

    def __init__(self, timeout: float) -> None:
        """Take the seconds for one fit, after which the process is killed."""
        self._timeout = timeout
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._fit_lock = threading.Lock()
        """Where no thread can be started, `asyncio.to_thread` raises, but its call remains queued and may run
        beside that of a later fit."""

    async def fit(self, levels: Sequence[float]) -> Fit | None:
        """Return the result of `forecast.fit.fit`; one caller at a time.

        Args:
            levels: the logarithm of the load of each bin, the oldest first (`History.levels`).

        Raises:
            errors.Unavailable: the process cannot be started, died or took too long; the next call starts a
                new process.
        """
        try:
            return await asyncio.to_thread(self._fit, array("f", levels))
        except RuntimeError as error:
            raise errors.Unavailable(f"no thread can be started: {error}") from error

    def end(self) -> None:
        """End the process; a fit that is not done fails."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()

    def _fit(self, levels: Sequence[float]) -> Fit | None:
        with self._fit_lock:
            return self._fit_alone(levels)

    def _fit_alone(self, levels: Sequence[float]) -> Fit | None:
        connection = self._connection
        if self._process is None or connection is None:
            try:
                connection = self._start()
            except OSError as error:
                raise errors.Unavailable(f"the process that fits cannot be started: {error}") from error
        try:
            connection.send(levels)
            is_done = connection.poll(self._timeout)
            fitted: Fit | None = connection.recv() if is_done else None
        except (OSError, EOFError) as error:
            raise self._failed(connection, "the process that fits died") from error
        if not is_done:
            raise self._failed(connection, f"the fit took longer than {self._timeout:g} s")
        return fitted

    def _failed(self, connection: Connection, message: str) -> errors.Unavailable:
        """End the process, and return the error to raise."""
        self.end()
        connection.close()
        return errors.Unavailable(message)

    def _start(self) -> Connection:
        spawn = multiprocessing.get_context("spawn")
        connection, child_end = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(child_end,), name="fitting", daemon=True)
        try:
            process.start()
        except OSError:
            connection.close()
            raise
        finally:
            child_end.close()  # so that the end of the child closes the pipe
        self._process, self._connection = process, connection
        return connection


def _serve(connection: Connection) -> None:
    """Fit until the parent has ended. Only this process imports statsmodels and numpy."""
    background_process.yield_to_parent()
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 as the docstring says

    while True:
        try:
            levels = connection.recv()
        except EOFError:
            return
        with threadpool_limits(1):
            connection.send(fit(levels))


def _is_due(state: TargetState) -> bool:
    """Whether the policy uses forecasts, and has observed enough load for a fit."""
    is_forecast = not state.is_fixed and state.config.prediction != "Disabled"
    return is_forecast and state.sizer is not None and len(state.sizer.history) >= LEAST_BINS
