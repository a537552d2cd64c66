"""The scaling policy: replicas by the load to expect when a start ordered now would be ready. Pure."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

from autoscaler.decision_values import Band, Decision
from autoscaler.forecast.fit import Fit
from autoscaler.forecast.forecaster import WAIT, Forecaster
from autoscaler.forecast.history import History
from autoscaler.observation import Capacity, Load, Observation, Replicas
from autoscaler.policy.backlog import TOLERANCE, Backlog, serving_seconds
from autoscaler.policy.capacity import CapacityEstimate
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.idle import IdleTimes
from autoscaler.policy.limits.pace import PaceLimit
from autoscaler.policy.limits.schedules import Bounds, bounds_at
from autoscaler.policy.limits.stabilization import (
    Stabilization,
    rise_stabilized_message,
    stabilized_message,
    with_rise_step,
)
from autoscaler.policy.metric_needs import MetricSizer
from autoscaler.policy.need import Need
from autoscaler.policy.queueing import slots
from autoscaler.policy.scale_to_zero import idle_need
from autoscaler.policy.startup import StartupTimes

TICK_SECONDS = 5.0
"""Seconds between readings of the load, and between decisions; nearly every start takes longer."""
QUEUE_SHARE = 0.6
"""Share of the risk for waits of random arrivals (`queueing.slots`). Loads of 1, 3 and 10 slots need 3, 6 and
15 slots; another slot would cost more than it saves at this risk."""
FULL_REPLICAS = 10.0
"""Replicas for the mean load from which on the configured risk applies. With fewer replicas the accepted risk
rises in proportion: an additional replica saves about the same share of the requests at any load, but adds a
larger share to the cost of few replicas."""
MOST_RISK_FACTOR = 20.0
"""Largest factor of the configured risk: below half a replica, a second one would change nothing."""
WORK_READINGS = 50.0
"""Readings with requests over which the mean work of a request is taken."""
STALE_SECONDS = 60.0
"""Seconds without a reading after which load is unknown."""

CLOCK_JUMP_SECONDS = 120.0
"""Seconds between the end of a reading and the start of the next from which the clock jumped: a reading
covers all the time since the last one. Twice the time between decisions on an idle target, at which a request
may wait before its next reading."""
SAME_MOMENT = 1.0
"""Seconds between a reading and the decision on it for which the replicas of the decision count as those
of the reading."""

_UNLIMITED = Capacity(1e12, 1e12)
"""Capacity of a replica that has had no request: every load of zero is within it."""
_WOKEN = ("Woken", "a request waits for a replica")
"""Reason and message of the first replica, for a held request."""
_NO_FORECAST = Band(0.0, 0.0, 0.0, 0.0)
"""Forecast of a load that is unknown."""


class _Limited(NamedTuple):
    """A count within all limits, with the reason and message of the last binding rule."""

    replicas: int
    reason: str
    message: str


class Sizer:
    """Sizes one target."""

    interval = TICK_SECONDS

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.capacity = CapacityEstimate(config.capacity)
        self.startup = StartupTimes()
        self.idle = IdleTimes()
        self._metric_sizer = MetricSizer(config)
        unit = config.capacity.rate if config.capacity is not None else 1.0
        self.forecaster = Forecaster(unit, 1 - config.risk / 100, config.zone)
        self._risk_factor = 1.0
        """Factor of the configured risk at the current number of replicas."""
        self._stabilization = Stabilization(config.down.stabilization, config.up.stabilization)
        self._backlog = Backlog(config.risk)
        self._pace = PaceLimit(config.up, config.down)
        self._load: Load | None = None
        """The last load."""
        self._read_at = -math.inf
        """Unix seconds of the end of the last load."""
        self._work_per_request = math.nan
        """Mean work of a request."""
        self._ready, self._ready_since = 0, math.inf
        """Ready replicas, and the Unix seconds since which their number is the same."""
        self._desired_since = math.inf
        """Unix seconds of the decision since which a replica is desired; infinite while none is."""

    def decide(self, observation: Observation) -> Decision:
        """Return the replicas to have now."""
        observation = _plausible(observation)
        now, replicas = observation.now, observation.replicas
        self.startup.learn(replicas.started, replicas.failed)
        if observation.load is not None and observation.load.seconds > 0:
            self._observe(observation.load, replicas.ready, now)
        self._metric_sizer.learn(observation)
        bounds = bounds_at(self.config.schedules, self.config.min_replicas, self.config.max_replicas, now)
        startup = self.startup.expected(replicas.starting, now)
        if replicas.ready > 0:
            self.idle.begin(now)
        self._desired_since = min(self._desired_since, now) if replicas.desired > 0 else math.inf
        load, capacity = self._load, self.capacity.value
        if load is None or now - self._read_at > STALE_SECONDS:
            return self._without_load(observation, bounds, startup)
        if capacity is None:
            if _is_busy(load):
                return self._without_load(observation, bounds, startup, is_busy=True)
            capacity = _UNLIMITED
        need = self._with_metrics(observation, self._need(now, load, capacity, startup, replicas))
        need = with_rise_step(need, replicas.desired)
        stabilized = self._stabilization.keep(now, replicas.desired, need.without_backlog, startup)
        if bounds.least == 0 and not _is_busy(load):
            need = idle_need(
                need,
                stabilized,
                replicas,
                self.idle,
                self.config,
                desired_since=self._desired_since,
                now=now,
                startup=startup,
            )
            is_set = self.config.down.stabilization is not None
            # A stabilization window of the spec applies until the end of the idle time, which removes all
            # replicas at once; without one, the idle time alone decides.
            stabilized = min(stabilized, replicas.desired) if is_set and need.replicas else need.replicas
        limited = self._limited(need, stabilized, replicas.desired, bounds, now)
        return Decision(
            replicas=limited.replicas,
            reason=limited.reason,
            message=limited.message,
            needed=need.replicas,
            metric=need.metric,
            rate=self.forecaster.last,
            capacity=0.0 if capacity is _UNLIMITED else capacity.rate,
            backlog=need.backlog,
            startup=startup,
            metric_needs=need.metric_needs,
            forecast=need.band if self.config.prediction != "Disabled" else None,
        )

    def _limited(self, need: Need, stabilized: int, desired: int, bounds: Bounds, now: float) -> _Limited:
        """Return the count within stabilization, pace and bounds.

        Args:
            need: the need now.
            stabilized: replicas that stabilization keeps.
            desired: current `spec.replicas`.
            bounds: the bounds now.
            now: Unix seconds.
        """
        by_schedule = f" by the schedule {bounds.schedule}" if bounds.schedule else ""
        count, reason, message = need.replicas, need.reason, need.message
        if stabilized > count:
            count, reason, message = (
                stabilized,
                "ScaleDownStabilized",
                stabilized_message(need.replicas, stabilized),
            )
        sustained = self._stabilization.sustained_rise(now, desired, count)
        if sustained < count:
            count, reason, message = sustained, "ScaleUpStabilized", rise_stabilized_message(count, sustained)
        allowed = self._pace.limited(now, desired, count)
        if allowed != count:
            message = f"{_needed_message(need.replicas, stabilized, allowed)}; behavior allows {allowed} now"
            count, reason = allowed, "PaceLimited"
        if count > bounds.most:
            needed = _needed_message(need.replicas, stabilized, bounds.most)
            message = f"{needed}; the maximum is {bounds.most}{by_schedule}"
            return _Limited(bounds.most, "MaxReplicas", message)
        if count < bounds.least:
            message = f"{count} needed now; the minimum is {bounds.least}{by_schedule}"
            return _Limited(bounds.least, "MinReplicas", message)
        return _Limited(count, reason, message)

    def _with_metrics(self, observation: Observation, need: Need) -> Need:
        """Return the need, raised to the highest need of a metric with a target.

        If each metric of the spec has a target and a value, and none is of the type Latency, the need by
        capacity does not count.
        """
        rate = max(need.band.upper, self.forecaster.last)
        by_target_value = self._metric_sizer.by_target_value(observation, rate, self.capacity.best)
        by_capacity = self._metric_sizer.by_capacity(need.replicas, need.message, self.forecaster.last)
        has_needs = all(metric_need.needed is not None for metric_need in by_target_value)
        if by_target_value and has_needs and self._metric_sizer.are_sufficient:
            need = replace(need, replicas=0, without_backlog=0)
        for metric_need in by_target_value:
            # A metric without a value removes no replica.
            count = observation.replicas.desired if metric_need.needed is None else metric_need.needed
            if count > need.replicas:
                need = replace(
                    need,
                    replicas=count,
                    without_backlog=count,
                    reason="Metric",
                    message=f"{metric_need.metric}: {metric_need.message}",
                    metric=metric_need.metric,
                )
        is_busy = self._load is not None and _is_busy(self._load)
        replicas = max(need.replicas, 1) if is_busy else need.replicas
        return replace(need, replicas=replicas, metric_needs=(*by_capacity, *by_target_value))

    def _observe(self, reading: Load, ready: int, now: float) -> None:
        """Learn from a reading while `ready` replicas served, its idle part first."""
        for load in reading.split():
            self._observe_part(load, ready, now)

    def _observe_part(self, load: Load, ready: int, now: float) -> None:
        if self._load is not None and abs(load.start - self._read_at) > CLOCK_JUMP_SECONDS:
            self.idle.shift(load.start - self._read_at)
            self._stabilization.clock_jumped()
        self._load, self._read_at = load, load.end
        self._metric_sizer.latency.take(load, ready)
        if ready != self._ready or now < self._ready_since:
            self._ready, self._ready_since = ready, now
        if load.arrivals > 0:
            self._observe_work(load.work / load.arrivals)
            if self.capacity.value is not None:
                self.forecaster.wait = max(self._service(self.capacity.value), WAIT)
        if load.start > self._ready_since - SAME_MOMENT:
            # During a change of the count it is unknown which replicas answered the requests of a reading.
            self.capacity.learn(load, ready)
        self.forecaster.observe(load.end, load.seconds, load.work)
        self.idle.observe(load.start, load.end, _is_busy(load))

    def _observe_work(self, work: float) -> None:
        """Take the mean work of the requests of a reading."""
        if math.isnan(self._work_per_request):
            self._work_per_request = work
        else:
            self._work_per_request += (work - self._work_per_request) / WORK_READINGS

    def _need(self, now: float, load: Load, capacity: Capacity, startup: float, replicas: Replicas) -> Need:
        """Return the replicas that the load asks for when a start ordered now would be ready."""
        # From the end of the reading to the end of a start that the next decision orders.
        horizon = startup + self.interval + max(now - load.end, 0.0)
        self._set_risk_factor(self.forecaster.mean / capacity.rate)
        band = self._band(horizon, replicas, now)
        last = self.forecaster.last
        rate = max(band.upper, last)
        base = max(
            math.ceil(rate / capacity.rate - TOLERANCE), self._replicas_for_queueing(band.median, capacity), 0
        )
        # Requests that wait beyond those in service.
        waiting = max(load.in_flight - replicas.ready * capacity.concurrency, 0.0) + load.held
        # For a reading without arrivals: the mean, which is not known before the first arrival.
        mean_work = 1.0 if math.isnan(self._work_per_request) else self._work_per_request
        waiting_work = waiting * (load.work / load.arrivals if load.arrivals > 0 else mean_work)
        # A steady rise has its mean in the middle of the start.
        arriving = max(last, self.forecaster.extrapolated(startup / 2)) * startup
        served = serving_seconds(replicas, startup, now) * capacity.rate
        with_backlog = self._backlog.replicas(
            now,
            for_load=max(last, self.forecaster.extrapolated(horizon)) / capacity.rate,
            backlog_seconds=max(waiting_work + arriving - served, 0.0) / capacity.rate,
            startup=startup,
            desired=replicas.desired,
            is_late=waiting * self._work_per_request > rate * self.forecaster.wait,
        )
        count = max(with_backlog, base)
        if _is_busy(load):
            count = max(count, 1)
        if count > base:
            reason, message = "Backlog", f"{waiting:.0f} requests wait"
        elif last >= band.upper:
            reason, message = "Load", "for the load that is there"
        else:
            reason, message = "Forecast", f"for the load expected within {horizon:.0f} s"
        return Need(count, without_backlog=base, reason=reason, message=message, band=band, backlog=waiting)

    def _set_risk_factor(self, replicas: float) -> None:
        """Set the factor of the configured risk: the fewer `replicas` the mean load needs, the higher."""
        factor = min(max(FULL_REPLICAS / max(replicas, 1e-9), 1.0), MOST_RISK_FACTOR)
        self._risk_factor = factor
        self.forecaster.multiply_risk(factor)

    def _replicas_for_queueing(self, rate: float, capacity: Capacity) -> int:
        """Return the replicas with which few requests wait for each other at `rate` (work per second)."""
        if math.isnan(self._work_per_request) or capacity is _UNLIMITED:
            return 0
        service = self._service(capacity)
        requests_in_service = rate / capacity.rate * capacity.concurrency
        share = QUEUE_SHARE * self._risk_factor * self.config.risk / 100
        needed_slots = slots(requests_in_service, service, max(service, WAIT), share)
        return math.ceil(needed_slots / capacity.concurrency - TOLERANCE)

    def _service(self, capacity: Capacity) -> float:
        """Return the seconds of a request that does not wait."""
        return capacity.concurrency * self._work_per_request / capacity.rate

    def _band(self, horizon: float, replicas: Replicas, now: float) -> Band:
        """Return the forecast at the horizon; the current load where the spec disables prediction, or where
        starts do not end, as a forecast would add starts that do not end either.
        """
        if self.config.prediction == "Disabled" or self.startup.are_stuck(replicas.starting, now):
            last = self.forecaster.last
            return Band(horizon, last, last, last)
        return self.forecaster.band(horizon)

    def _without_load(
        self, observation: Observation, bounds: Bounds, startup: float, *, is_busy: bool = False
    ) -> Decision:
        """Return a decision while the load or the capacity is unknown: by the metrics if each metric of the
        spec is a gauge with a target and a value, and otherwise for the current count. `is_busy` is whether
        the target has requests, which need a replica.
        """
        now, desired = observation.now, observation.replicas.desired
        is_woken = desired == 0 and observation.load is not None and observation.load.held > 0
        # The needs of metrics that depend on the rate are left out below: they are not gauges.
        by_target_value = self._metric_sizer.by_target_value(observation, rate=0.0, latency=0.0)
        metric_needs = [need for need in by_target_value if need.metric in observation.gauges]
        if (
            metric_needs
            and len(metric_needs) == len(self.config.metrics)
            and all(need.needed is not None for need in metric_needs)
        ):
            decisive = max(metric_needs, key=lambda need: need.needed or 0)
            needed, metric = decisive.needed or 0, decisive.metric
            reason, message = "Metric", f"{metric}: {decisive.message}"
            if is_busy and needed == 0:
                needed, metric = 1, "QPS"
                reason, message = _WOKEN if is_woken else ("Load", "for the load that is there")
            need = Need(
                needed,
                without_backlog=needed,
                reason=reason,
                message=message,
                band=_NO_FORECAST,
                backlog=0.0,
                metric=metric,
            )
            stabilized = self._stabilization.keep_without_load(now, desired, needed, startup)
            limited = self._limited(need, stabilized, desired, bounds, now)
            return Decision(
                limited.replicas,
                limited.reason,
                limited.message,
                needed=needed,
                metric=metric,
                startup=startup,
                metric_needs=tuple(metric_needs),
            )
        count = self._pace.limited(now, desired, max(desired, 1) if is_busy or is_woken else desired)
        if is_woken:
            reason, message = _WOKEN
        elif self._load is None or self.capacity.value is None:
            reason, message = "Unknown", "the load is not known yet"
        else:
            reason, message = "MetricsMissing", "no reading of the load: the count is held"
        count = min(max(count, bounds.least), bounds.most)
        return Decision(count, reason, message, needed=count, startup=startup)

    def observe_history(self, end: float, step: float, work: list[float]) -> None:
        """Learn from the load of the past, before the first decision.

        Args:
            end: Unix seconds of the end of the last step.
            step: seconds of each step.
            work: work of each step, the oldest first.
        """
        start = end - step * len(work)
        for i, amount in enumerate(work):
            begin = start + i * step
            self.forecaster.observe(begin + step, step, amount)
            self.idle.observe(begin, begin + step, amount > 0)

    @property
    def history(self) -> History:
        """Return the load of the last two weeks."""
        return self.forecaster.history

    def set_fit(self, fitted: Fit | None) -> None:
        """Use these regressions in the next forecasts; None: there are none."""
        self.forecaster.set_fit(fitted)

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        return {
            "capacity": self.capacity.state(),
            "startup": self.startup.state(),
            "idle": self.idle.state(),
            "forecast": self.forecaster.state(),
            "metrics": self._metric_sizer.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`."""
        self.capacity.restore(state["capacity"])
        self.startup.restore(state["startup"])
        self.idle.restore(state["idle"])
        self.forecaster.restore(state["forecast"])
        if "metrics" in state:  # absent in older states
            self._metric_sizer.restore(state["metrics"])


def _plausible(observation: Observation) -> Observation:
    """Return an observation without a load that no target can have."""
    load = observation.load
    return observation if load is None or load.is_plausible else replace(observation, load=None)


def _needed_message(needed: int, stabilized: int, limit: int) -> str:
    """Return the sentence for the need that `limit` replaces: the need now, or within the stabilization
    window.
    """
    return (
        f"{needed} are needed"
        if needed > limit or needed >= stabilized
        else stabilized_message(needed, stabilized)
    )


def _is_busy(load: Load) -> bool:
    return load.arrivals > 0 or load.in_flight > 0 or load.held > 0
