"""Teaches targets without stored state their load of the last two weeks, which a Prometheus has.

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
from serving.resources import metric_names, names
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


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The request for the backfill of one target."""

    key: Key
    """The key of the Autoscaler."""
    query: str
    """PromQL for the requests per second of the target."""
    config: PolicyConfig
    restore_history: Callable[[Object], None]
    """Takes the result of `backfilled_state`."""
    end: Callable[[], None]
    """Called when the load was read or is given up, so that no later process requests it again."""
    emit: Callable[[str, str], Awaitable[None]]
    """Records an Event: reason and message."""
    requested: float = field(default_factory=clock.monotonic)
    """Monotonic seconds of the request."""


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
    selected = f'namespace="{meta["namespace"]}",inference="{inference}",predictor="{predictor}"'
    return f"sum(rate({metric_names.RECEIVED}{{{selected}}}[5m]))"


def backfilled_state(config: PolicyConfig, rates: Mapping[float, float]) -> Object:
    """Return the learned state (`Sizer.state`) of a policy that has observed this load.

    Args:
        config: the policy of the target.
        rates: requests per second by Unix seconds, each the mean of the step before it. The load of missing
            steps is unknown; rates above `MOST_RATE` count as missing.
    """
    sizer, idle = Sizer(config), IdleTimes()
    consecutive: list[float] = []  # requests of each step since the last gap
    last = -math.inf
    for time, rate in sorted(rates.items()):
        if rate > MOST_RATE:
            continue
        if consecutive and time - last > 1.5 * STEP_SECONDS:
            sizer.observe_history(last, STEP_SECONDS, consecutive)
            consecutive = []
        consecutive.append(rate * STEP_SECONDS)
        last = time
        _observe_idle(idle, time, rate * STEP_SECONDS)
    sizer.observe_history(last, STEP_SECONDS, consecutive)
    return sizer.state() | {"idle": idle.state()}  # not the sizer's idle times, which whole steps have taught


def _observe_idle(idle: IdleTimes, end: float, requests: float) -> None:
    """Add a step to the idle times, with its requests at even distances.

    With the whole step as busy, an idle time would be up to two steps too short.
    """
    if requests <= 0:
        idle.observe(end - STEP_SECONDS, end, is_busy=False)
        return
    margin = 0.5 * STEP_SECONDS / max(round(requests), 1)
    idle.observe(end - STEP_SECONDS + margin, end - margin, is_busy=True)


class Backfill:
    """Backfills one target after another."""

    def __init__(self, server: str) -> None:
        """Create the queue; `server` is the base URL of a Prometheus."""
        self._server = server
        self._requests: asyncio.Queue[BackfillRequest] = asyncio.Queue()

    def request(self, request: BackfillRequest) -> None:
        """Queue the backfill of a target."""
        self._requests.put_nowait(request)

    async def run(self) -> None:
        """Backfill the queued targets until cancelled."""
        async with http_reading.session() as session:
            while True:
                request = await self._requests.get()
                has_load = False
                try:
                    has_load = await self._backfill(session, request)
                except (errors.Unavailable, errors.Permanent) as error:
                    log.warning("the load of %s was not read: %s", request.key, error)
                    is_late = clock.monotonic() - request.requested >= GIVE_UP_SECONDS
                    if isinstance(error, errors.Unavailable) and not is_late:
                        self._requests.put_nowait(request)
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    await request.emit(
                        HISTORY_UNAVAILABLE, f"the load of the last weeks was not read: {error}"
                    )
                request.end()
                if has_load:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _backfill(self, session: aiohttp.ClientSession, request: BackfillRequest) -> bool:
        """Backfill one target, and return whether the Prometheus has load of it.

        Raises:
            errors.Unavailable: the Prometheus does not answer, or no thread can be started.
            errors.Permanent: the Prometheus refuses the query.
        """
        end = math.floor(clock.now().timestamp() / STEP_SECONDS) * STEP_SECONDS
        span = prometheus.RangeQuery(request.query, end - DAYS * 86_400, end, STEP_SECONDS)
        rates = await prometheus.query_range(session, self._server, span)
        if not rates:
            log.info("%s has no load of %s", addresses.without_credentials(self._server), request.key)
            return False
        try:
            learned = await asyncio.to_thread(backfilled_state, request.config, rates)
        except RuntimeError as error:
            raise errors.Unavailable(f"no thread can be started: {error}") from error
        request.restore_history(learned)
        hours = len(rates) * STEP_SECONDS / 3600
        server = addresses.without_credentials(self._server)
        await request.emit(HISTORY_READ, f"{hours:.0f} hours of the target's load were read from {server}")
        return True
