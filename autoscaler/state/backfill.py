"""Backfills the load of the last two weeks from a Prometheus, for targets without stored state.

Targets are backfilled one after another, beside the ticks. So a thousand new targets neither query a
Prometheus at once nor take the processor from the ticks.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.idle import IdleTimes
from autoscaler.policy.sizer import Sizer
from autoscaler.signals import prometheus
from autoscaler.signals.board import MOST_RATE
from serving import clock, errors
from serving.kube import Key
from serving.objects import Object
from serving.resources import names
from serving.system.network import addresses, http_reading

log = logging.getLogger(__name__)

DAYS = 14.0
"""The longest season of the forecast is a week, and the forecast needs two of them."""
STEP_SECONDS = 300.0
"""The resolution of the seasons of the forecast."""
RETRY_SECONDS = 60.0
"""Seconds between attempts while the Prometheus does not answer."""
GIVE_UP_SECONDS = 1800.0
"""Seconds after the request for a backfill. Later the load observed meanwhile is worth more than a backfilled
history with a gap."""
PAUSE_SECONDS = 5.0
"""Seconds between two targets: a backfill takes half a second of the processor, so backfills take at most a
tenth of it."""
HISTORY_READ = "HistoryRead"
HISTORY_UNAVAILABLE = "HistoryUnavailable"
QUERY = 'sum(rate(slipway_requests_received_total{{namespace="{0}",inference="{1}",predictor="{2}"}}[5m]))'


@dataclass(frozen=True, slots=True)
class Job:
    """The backfill of one target."""

    key: Key
    """The key of the Autoscaler."""
    query: str
    config: PolicyConfig
    restore_history: Callable[[Object], None]
    """Receives the state of a policy that has observed the load."""
    emit: Callable[[str, str], Awaitable[None]]
    """Records an Event: reason and message."""
    requested: float = field(default_factory=clock.monotonic)


def query(target: Mapping[str, Any]) -> str | None:
    """Return the PromQL for the requests per second of a predictor, over all its revisions and gateways.

    Args:
        target: a Deployment; for one that belongs to no predictor there is no query.
    """
    meta = target["metadata"]
    labels = meta.get("labels") or {}
    inference, predictor = labels.get(names.INFERENCE_LABEL), labels.get(names.PREDICTOR_LABEL)
    if not inference or not predictor:
        return None
    return QUERY.format(meta["namespace"], inference, predictor)


def warmed(config: PolicyConfig, rates: Mapping[float, float]) -> Object:
    """Return the state of a policy that has observed this load.

    Args:
        config: of the target.
        rates: requests per second by Unix seconds, each the mean of the step before it. The load of missing
            steps is unknown; rates above `MOST_RATE` count as missing.
    """
    sizer, idle = Sizer(config), IdleTimes()
    run: list[float] = []
    last = -math.inf
    for time, rate in sorted(rates.items()):
        if rate > MOST_RATE:
            continue
        if run and time - last > 1.5 * STEP_SECONDS:
            sizer.warm(last, STEP_SECONDS, run)
            run = []
        run.append(rate * STEP_SECONDS)
        last = time
        _observe_idle(idle, time, rate * STEP_SECONDS)
    sizer.warm(last, STEP_SECONDS, run)
    return sizer.state() | {"idle": idle.state()}


def _observe_idle(idle: IdleTimes, end: float, requests: float) -> None:
    """Add a step to the idle times, its requests at even distances: whole steps would shorten a silence by up
    to two.
    """
    if requests <= 0:
        idle.observe(end - STEP_SECONDS, end, is_busy=False)
        return
    margin = 0.5 * STEP_SECONDS / max(round(requests), 1)
    idle.observe(end - STEP_SECONDS + margin, end - margin, is_busy=True)


class Backfill:
    """Backfills one target after another."""

    def __init__(self, server: str) -> None:
        """Args: server: base URL of a Prometheus."""
        self._server = server
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()

    def request(self, job: Job) -> None:
        """Queue the backfill of a target."""
        self._jobs.put_nowait(job)

    async def run(self) -> None:
        """Work until cancelled."""
        async with http_reading.session() as session:
            while True:
                job = await self._jobs.get()
                try:
                    is_read = await self._backfill(session, job)
                except errors.Unavailable as error:
                    log.warning("the load of %s was not read: %s", job.key, error)
                    if clock.monotonic() - job.requested < GIVE_UP_SECONDS:
                        self._jobs.put_nowait(job)
                        await asyncio.sleep(RETRY_SECONDS)
                    else:
                        await job.emit(
                            HISTORY_UNAVAILABLE, f"the load of the last weeks was not read: {error}"
                        )
                    continue
                except errors.Permanent as error:
                    log.warning("the load of %s was not read: %s", job.key, error)
                    await job.emit(HISTORY_UNAVAILABLE, f"the load of the last weeks was not read: {error}")
                    continue
                if is_read:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _backfill(self, session: aiohttp.ClientSession, job: Job) -> bool:
        """Teach a target its load; returns whether the Prometheus has load of the target.

        Raises:
            errors.Unavailable: the Prometheus does not answer, or no thread can be started.
            errors.Permanent: it refuses the query.
        """
        end = math.floor(clock.now().timestamp() / STEP_SECONDS) * STEP_SECONDS
        span = prometheus.RangeQuery(job.query, end - DAYS * 86_400, end, STEP_SECONDS)
        rates = await prometheus.query_range(session, self._server, span)
        if not rates:
            log.info("%s has no load of %s", addresses.without_credentials(self._server), job.key)
            return False
        try:
            learned = await asyncio.to_thread(warmed, job.config, rates)
        except RuntimeError as error:
            raise errors.Unavailable(f"no thread can be started: {error}") from error
        job.restore_history(learned)
        hours = len(rates) * STEP_SECONDS / 3600
        server = addresses.without_credentials(self._server)
        await job.emit(HISTORY_READ, f"{hours:.0f} hours of the target's load were read from {server}")
        return True
