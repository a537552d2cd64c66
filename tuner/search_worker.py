"""The search process: started by the first request, ended when idle, started again after it died.

scikit-learn takes seconds to import and 200 MB, and a search takes up to a second of a core, in which the
process of the controllers would not react. `tuner.experiment_plan` makes the plan in that process.
"""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from serving import clock, errors
from serving.system import background_process
from tuner.planning.exchange import ExperimentPlan, PlanRequest


class SearchWorker:
    """Makes plans in a separate process, one at a time."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._pool: ProcessPoolExecutor | None = None
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    async def plan(self, request: PlanRequest) -> ExperimentPlan:
        """Return the plan of an experiment.

        Raises:
            errors.Temporary: `SearchDied`; the next request starts another process.
        """
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                1, mp_context=spawn, initializer=background_process.yield_to_parent
            )
        if self._timer is not None:
            self._timer.cancel()
        self._waiting += 1
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, _make_plan, request)
        except BrokenProcessPool as error:
            if self._pool is pool:
                self.close()
            name = request.recorded.experiment["metadata"]["name"]
            raise errors.Temporary("SearchDied", f"the process that searches for {name} died") from error
        finally:
            self._waiting -= 1
            if not self._waiting and self._pool is not None:
                self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self.close)

    def close(self) -> None:
        """End the process; at once if it is idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _make_plan(request: PlanRequest) -> ExperimentPlan:
    """Make the plan, in the search process; only that process imports the heavy libraries."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 see above

    from tuner.experiment_plan import make_plan  # noqa: PLC0415 see above
    from tuner.search.next_decision import decide  # noqa: PLC0415 see above

    try:
        with threadpool_limits(1):  # trials measure on the other cores
            return make_plan(request, clock.now(), decide)
    except errors.SlipwayError as error:
        # Errors with own constructors cannot be unpickled by the parent.
        raise RuntimeError(f"{type(error).__name__}: {error}") from None
