"""Shared parts of the baselines: windows over readings, stabilisation, bounds, and views of the load."""

from collections import deque
from collections.abc import Sequence

from autoscaler.decision import Decision
from autoscaler.observation import Load, Observation, Replicas
from autoscaler.simulate.policy import UTILISATION
from autoscaler.simulate.policy_inputs import PolicyInputs

TARGET = 0.7
"""Share of a replica's capacity that every reactive baseline aims at: Knative's default."""
ROUNDING = 1e-6
"""Requests in flight below which a mean counts as none; Knative rounds to six digits as well."""


class ReadingWindow:
    """Mean over the last seconds of readings, each weighted by the span that it stands for.

    It ends at the latest reading and not now: readings arrive late, and a short window would be empty.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._readings: deque[tuple[float, float, float]] = deque()
        self._area = 0.0
        self._span = 0.0

    @property
    def end(self) -> float | None:
        """Unix seconds of the latest reading; None: there is none."""
        return self._readings[-1][0] if self._readings else None

    def add(self, end: float, span: float, value: float) -> None:
        """Take a reading of `value` that stands for the `span` seconds until `end`."""
        self._readings.append((end, span, value))
        self._area += span * value
        self._span += span
        while self._readings[0][0] <= end - self._seconds:
            _, gone, before = self._readings.popleft()
            self._area -= gone * before
            self._span -= gone

    def mean(self) -> float:
        """Return the mean; over less than the window while readings are fewer, and 0 without any."""
        if not self._readings:
            return 0.0
        outside = self._span - self._seconds
        area, span = self._area, self._span
        if outside > 0:
            area -= outside * self._readings[0][2]
            span = self._seconds
        mean = area / span if span > 0 else 0.0
        return mean if mean > ROUNDING else 0.0


class Highest:
    """The highest of the values of the last seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: deque[tuple[float, float]] = deque()

    def of(self, now: float, value: float) -> float:
        """Take a value and return the highest of the window."""
        values = self._values
        while values and values[-1][1] <= value:
            values.pop()
        values.append((now, value))
        while values[0][0] <= now - self._seconds:
            values.popleft()
        return values[0][1]


class Startups:
    """How long starts take, as an operator would configure it: the longest of the recent ones."""

    def __init__(self, unknown: float = 60.0, kept: int = 20) -> None:
        self.seconds = unknown
        """`unknown` until a start has ended: a minute is a typical start of a model image."""
        self._seen: deque[float] = deque(maxlen=kept)

    def see(self, replicas: Replicas) -> None:
        """Take note of the starts that ended since the last observation."""
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
    """Return the share of the ready replicas' capacity in use, at most 1; None: not measured."""
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
        inputs: whose bounds hold.
        count: replicas before bounds.
        reason: the binding rule.
        least: replicas, where a baseline cannot go down to the minimum of the inputs.
        work: work per second.
    """
    low = inputs.min_replicas if least is None else max(least, inputs.min_replicas)
    replicas = min(max(count, low), inputs.max_replicas)
    return Decision(replicas, reason, "", count, rate=work, capacity=inputs.capacity.rate)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(rank, 1) - 1]
