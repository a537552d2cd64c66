"""Shared parts of the baselines: windows over readings, stabilisation, bounds, and views of the load."""

from collections import deque
from typing import NamedTuple

from autoscaler.decision_values import Decision
from autoscaler.observation import Load, Observation, Replicas
from autoscaler.simulate.policy import UTILISATION
from autoscaler.simulate.policy_inputs import PolicyInputs

TARGET = 0.7
"""Share of a replica's capacity that every reactive baseline aims at: Knative's default."""
ROUNDING = 1e-6
"""Requests in flight below which a mean counts as none; Knative rounds to six digits as well."""


class _WindowReading(NamedTuple):
    """A value that stands for the `span` seconds until `end`, in Unix seconds."""

    end: float
    span: float
    value: float


class ReadingWindow:
    """Mean of the readings of the last seconds, each weighted by the span that it stands for.

    The window ends at the latest reading, not now: readings arrive late, and a short window would be empty.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._readings: deque[_WindowReading] = deque()
        self._area = 0.0
        """Sum of span times value over the kept readings."""
        self._span = 0.0
        """Sum of the spans of the kept readings, in seconds."""

    @property
    def end(self) -> float | None:
        """Unix seconds of the end of the latest reading; None without a reading."""
        return self._readings[-1].end if self._readings else None

    def add(self, end: float, span: float, value: float) -> None:
        """Add a reading of `value` that stands for the `span` seconds until `end`, in Unix seconds."""
        self._readings.append(_WindowReading(end, span, value))
        self._area += span * value
        self._span += span
        while self._readings[0].end <= end - self._seconds:
            removed = self._readings.popleft()
            self._area -= removed.span * removed.value
            self._span -= removed.span

    def mean(self) -> float:
        """Return the mean, over less than the window while the readings span less; 0 without a reading."""
        if not self._readings:
            return 0.0
        outside = self._span - self._seconds
        area, span = self._area, self._span
        if outside > 0:
            area -= outside * self._readings[0].value  # the oldest reading began before the window
            span = self._seconds
        mean = area / span if span > 0 else 0.0
        return mean if mean > ROUNDING else 0.0


class Highest:
    """The highest of the values of the last seconds, as of a stabilization window."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: deque[tuple[float, float]] = deque()
        """Time in seconds and value; values fall, as a value below a later one cannot be the highest."""

    def of(self, now: float, value: float) -> float:
        """Add the value at `now`, in seconds, and return the highest value of the window."""
        values = self._values
        while values and values[-1][1] <= value:
            values.pop()
        values.append((now, value))
        while values[0][0] <= now - self._seconds:
            values.popleft()
        return values[0][1]


class Startups:
    """The start-up time that an operator would configure: the longest of the last `kept` starts."""

    def __init__(self, unknown: float = 60.0, kept: int = 20) -> None:
        self.seconds = unknown
        """Start-up time; `unknown` until a start has ended: a minute is a typical start of a model image."""
        self._seen: deque[float] = deque(maxlen=kept)

    def see(self, replicas: Replicas) -> None:
        """Add the start-up times of the replicas that became ready since the last observation."""
        if replicas.started:
            self._seen.extend(replicas.started)
            self.seconds = max(self._seen)


def requests_in_service(load: Load) -> float:
    """Return the requests in the service: those at replicas, queued there or held before them."""
    return load.in_flight + load.held


def rate(load: Load) -> float:
    """Return the work per second of a reading."""
    return load.work / load.seconds if load.seconds > 0 else 0.0


def utilisation(observation: Observation, inputs: PolicyInputs) -> float | None:
    """Return the used share of the ready replicas' capacity, 0 to 1; None: not measured.

    The gauge has the share. Without it the share is that of the load: 1 while requests are queued.
    """
    gauge = observation.gauges.get(UTILISATION)
    if gauge is not None:
        return min(gauge, 1.0)
    load, ready = observation.load, observation.replicas.ready
    if load is None or ready == 0:
        return None
    if load.in_flight > ready * inputs.capacity.concurrency:
        return 1.0
    return min(rate(load) / (ready * inputs.capacity.rate), 1.0)


def within_bounds(
    inputs: PolicyInputs, count: int, reason: str, *, least: int | None = None, work: float = 0.0
) -> Decision:
    """Return a decision within the bounds.

    Args:
        inputs: `min_replicas` and `max_replicas`.
        count: replicas before bounds.
        reason: the binding rule.
        least: least replicas of a baseline that has a minimum of its own, beside `min_replicas`.
        work: arriving work per second that the decision is based on.
    """
    low = inputs.min_replicas if least is None else max(least, inputs.min_replicas)
    replicas = min(max(count, low), inputs.max_replicas)
    return Decision(replicas, reason, "", count, rate=work, capacity=inputs.capacity.rate)
