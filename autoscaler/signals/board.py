"""Sums the gateways' counters to the load of each target, and rejects implausible readings. Pure.

A reading is implausible when counters fall while the same Envoy runs, when its time does not advance, or when
a target has more than a million requests per second. The status reports the gateway of a rejected reading.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.observation import Load, Percentile
from autoscaler.signals import durations
from autoscaler.signals.durations import DurationWindow
from autoscaler.signals.exposition import Counts, ScaleTargetName, TargetTokens

MOST_RATE = 1e6
"""Requests per second of one target at one gateway: ten times the rate of an Envoy of many cores."""
MOST_IN_FLIGHT = 1e6
"""Requests in flight of one target at one gateway: ten times the gateway's limit on many cores."""
START_TIME_TOLERANCE = 1.0
"""Seconds by which another Envoy's start time differs; that of one Envoy is computed and varies."""
CLOCK_TOLERANCE_SHARE = 0.5
"""Share of the time between two readings by which the gateway's clock may deviate from ours in that time; a
larger deviation means that a clock was set. `CLOCK_TOLERANCE_SECONDS` are added to this tolerance."""
LEAST_SPAN_SHARE = 0.1
"""Least time between two readings by the gateway's clock, as a share of that by ours: a clock that is set
back by nearly a tick would make a huge rate."""
CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds of the tolerance: a page may be a second older than the time of its scrape."""
MAX_UNIX_SECONDS = 1e11
"""Unix seconds, in three thousand years; a later value is not a time."""
QUIET_SECONDS = 15.0
"""Seconds without a new reading before the status reports it; a restart of Envoy takes less."""

_NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of one gateway at one time."""

    gateway: str
    read_at: float
    """Unix seconds by the gateway's clock."""
    started: float
    """Unix seconds of the start of the gateway's Envoy."""
    counts: Mapping[ScaleTargetName, Counts]
    buckets: Mapping[ScaleTargetName, Mapping[float, float]] = field(default_factory=dict)
    """Cumulative answers by the upper bound of their duration in seconds."""
    timed_targets: AbstractSet[ScaleTargetName] = frozenset()
    """Targets whose `buckets` were read; a target without answers has none."""
    tokens: Mapping[ScaleTargetName, TargetTokens] = field(default_factory=dict)
    """Token counts of language models."""


class Health(NamedTuple):
    """Whether the readings of a source are plausible."""

    source: str
    healthy: bool
    message: str = ""


class Rejection(NamedTuple):
    """The reason why a reading is not used."""

    message: str
    at_once: bool = True
    """Whether the status reports it at once; else after `QUIET_SECONDS`."""
    is_baseline: bool = False
    """Whether the next reading is compared with the rejected one, and not with the last accepted one."""


_NO_PAGE = Rejection("its page does not answer", at_once=False)


@dataclass(slots=True)
class _Gateway:
    before: Reading | None = None
    """The reading that the next one is compared with."""
    accepted_at: float = 0.0
    """Monotonic seconds of the last accepted reading; before any, of the first tick with the gateway."""
    rejection: Rejection | None = None
    rates: dict[ScaleTargetName, Counts] = field(default_factory=dict)
    """Rates of the last accepted reading, per second."""
    was_estimated: bool = False
    """Whether the load since the last accepted reading includes `rates`, as the gateway was silent."""


class _Increases(NamedTuple):
    """The increases between two accepted readings of one gateway."""

    seconds: float
    """Seconds between the readings."""
    counts: Mapping[ScaleTargetName, Counts]
    was_estimated: bool
    """Whether the gateway's last rates stand already for a part of these seconds."""


@dataclass(slots=True)
class _Sums:
    """Counts of one target since its load was taken."""

    since: float
    """Seconds of `Board._total_seconds` at the beginning of the first reading with requests."""
    arrivals: float = 0.0
    finished: float = 0.0
    errors: float = 0.0
    seconds: float = 0.0
    """Total seconds from a request to the end of its answer, of `timed` answers."""
    timed: float = 0.0


def rejection(before: Reading | None, reading: Reading, elapsed: float) -> Rejection | None:
    """Return the reason to reject a reading, or None.

    Args:
        before: the reading of the same gateway that the new one is compared with; None for the first.
        reading: the new reading.
        elapsed: seconds since the last accepted reading, by the monotonic clock.
    """
    reason = _malformed(reading)
    if reason is not None or before is None:
        return reason
    if reading.read_at == before.read_at:
        return Rejection("it repeats its counts", at_once=False)
    if is_restarted(before, reading):
        before = replace(before, counts={})
    return _implausible(before, reading, elapsed)


def is_restarted(before: Reading, reading: Reading) -> bool:
    """Whether a reading is of another Envoy than the previous one of its gateway, so that it counts from 0.

    A later start time alone does not say so: it is computed from the time of boot, which moves when the clock
    is set, and a gateway that was restarted computes it again for the Envoy that went on.
    """
    is_other_time = abs(reading.started - before.started) > START_TIME_TOLERANCE
    return is_other_time and reading.started > before.read_at - START_TIME_TOLERANCE


def _malformed(reading: Reading) -> Rejection | None:
    if not (0 < reading.read_at < MAX_UNIX_SECONDS and 0 <= reading.started < MAX_UNIX_SECONDS):
        return Rejection("its page does not say when it was read")
    for target, counts in reading.counts.items():
        if not all(0 <= value < math.inf for value in counts):
            return Rejection(f"its counts of {target.name} are not numbers from 0 on")
        if counts.in_flight > MOST_IN_FLIGHT:
            return Rejection(f"it says that {target.name} has {counts.in_flight:.0f} requests in flight")
    return None


def _implausible(before: Reading, reading: Reading, elapsed: float) -> Rejection | None:
    """Return the reason to reject a reading by its increases over the previous one, or None."""
    most = MOST_RATE * max(elapsed, 1.0)
    for target, counts in reading.counts.items():
        old = before.counts.get(target, _NOTHING)
        if counts == old:
            continue
        if counts.received < old.received or counts.answered < old.answered or counts.timed < old.timed:
            return Rejection(
                f"its counts of {target.name} have fallen, and its Envoy is the same", is_baseline=True
            )
        more = counts.received - old.received
        if more > most:
            return Rejection(
                f"it says that {target.name} had {more:.0f} requests in {elapsed:.0f} s", is_baseline=True
            )
    return None


def increases(
    before: Reading, reading: Reading, targets: AbstractSet[ScaleTargetName]
) -> dict[ScaleTargetName, Counts]:
    """Return the increases of counters between two readings of one gateway; gauges are the later ones."""
    old = {} if is_restarted(before, reading) else before.counts
    counts_by_target = {}
    for target, counts in reading.counts.items():
        earlier = old.get(target, _NOTHING)
        if (counts == earlier and not counts.in_flight) or target not in targets:
            continue
        parts = (max(now - then, 0.0) for now, then in zip(counts, earlier, strict=True))
        counts_by_target[target] = Counts(*parts)._replace(in_flight=counts.in_flight)
    return counts_by_target


def span(before: Reading, reading: Reading, elapsed: float) -> float:
    """Return the seconds between two readings: by the gateway's clock, or by ours if that was set."""
    reported = reading.read_at - before.read_at
    tolerance = CLOCK_TOLERANCE_SECONDS + CLOCK_TOLERANCE_SHARE * elapsed
    if reported >= LEAST_SPAN_SHARE * elapsed and abs(reported - elapsed) <= tolerance:
        return reported
    return max(elapsed, 0.1)


def _take_reading(
    gateway: _Gateway, reading: Reading | None, now: float, targets: AbstractSet[ScaleTargetName]
) -> tuple[float, dict[ScaleTargetName, Counts]] | None:
    """Update a gateway's state by its reading; None is a page that did not answer.

    Returns the seconds since the last accepted reading and the increases in them; None for a rejected one.
    """
    if reading is None:
        gateway.rejection = _NO_PAGE
        return None
    before, elapsed = gateway.before, now - gateway.accepted_at
    gateway.rejection = rejection(before, reading, elapsed)
    if gateway.rejection is not None:
        if gateway.rejection.is_baseline:
            gateway.before = reading
        return None
    gateway.before, gateway.accepted_at = reading, now
    if before is None:
        return 0.0, {
            target: Counts(in_flight=counts.in_flight)
            for target, counts in reading.counts.items()
            if counts.in_flight and target in targets
        }
    seconds = span(before, reading, elapsed)
    counts_by_target = increases(before, reading, targets)
    gateway.rates = {
        target: Counts(*(value / seconds for value in counts))._replace(in_flight=counts.in_flight)
        for target, counts in counts_by_target.items()
    }
    return seconds, counts_by_target


class Board:
    """The load of targets, summed over gateways."""

    def __init__(self) -> None:
        self._gateways: dict[str, _Gateway] = {}
        self._sums: dict[ScaleTargetName, _Sums] = {}
        self._in_flight: dict[ScaleTargetName, float] = {}
        self._held: Mapping[ScaleTargetName, float] = {}
        self._taken_at: dict[ScaleTargetName, float] = {}
        """By target, the value of `_total_seconds` when its load was taken last."""
        self._durations = DurationWindow()
        self._total_seconds = 0.0
        """Total seconds between the readings of all ticks; those of one tick count with their mean."""
        self._last_span = 0.0
        """Seconds of the last tick in `_total_seconds`."""
        self._end = 0.0
        """Unix seconds, by the controllers' clock, of the last tick with an accepted reading. The times of
        pages, by the clocks of other machines, give spans alone."""
        self._last_accepted_at = -math.inf
        """Monotonic seconds."""
        self.is_whole = False
        """Whether every live gateway gave an accepted reading at the last tick."""

    def tick(
        self,
        readings: Iterable[Reading],
        live: AbstractSet[str],
        targets: AbstractSet[ScaleTargetName],
        held: Mapping[ScaleTargetName, float],
        now: float,
        *,
        unix_now: float,
        problems: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add the readings of one tick.

        Args:
            readings: the readings of all gateways that answered.
            live: names of the gateways with a valid Lease.
            targets: those whose load is taken.
            held: held requests of activators, by target.
            now: monotonic seconds.
            unix_now: Unix seconds by the clock of the decisions, at which the load of the readings ends.
            problems: why gateways have no reading, where that is known, by name.
        """
        by_gateway = {reading.gateway: reading for reading in readings}
        accepted_increases: list[_Increases] = []
        for name in self._gateways.keys() - by_gateway.keys() - live:
            del self._gateways[name]
        in_flight: dict[ScaleTargetName, float] = {}
        silent: list[_Gateway] = []
        for name in sorted(by_gateway.keys() | live):
            gateway = self._gateways.get(name)
            if gateway is None:
                gateway = self._gateways[name] = _Gateway(accepted_at=now)
            before = gateway.before
            accepted = _take_reading(gateway, by_gateway.get(name), now, targets)
            if accepted is None:
                if name in problems and name not in by_gateway:
                    gateway.rejection = Rejection(problems[name])
                silent.append(gateway)
                continue
            seconds, counts_by_target = accepted
            if seconds > 0 and before is not None:
                self._add_durations(before, by_gateway[name], now)
                accepted_increases.append(_Increases(seconds, counts_by_target, gateway.was_estimated))
            gateway.was_estimated = False
            for target, counts in counts_by_target.items():
                if counts.in_flight:
                    in_flight[target] = in_flight.get(target, 0.0) + counts.in_flight
        self._held = held
        self.is_whole = bool(self._gateways) and not silent
        if accepted_increases:
            self._add_increases(accepted_increases, silent)
            self._end = unix_now
            for gateway in silent:  # its last known requests stay, so that the load does not seem to fall
                for target, counts in gateway.rates.items():
                    in_flight[target] = in_flight.get(target, 0.0) + counts.in_flight
            self._in_flight, self._last_accepted_at = in_flight, now

    def _add_durations(self, before: Reading, reading: Reading, now: float) -> None:
        """Add the durations of the answers between two accepted readings of one gateway."""
        is_new = is_restarted(before, reading)
        timed = reading.timed_targets & before.timed_targets
        self._durations.mark_read(timed, now)
        for target in timed & reading.buckets.keys():
            earlier = None if is_new else before.buckets.get(target)
            answers = durations.increase(earlier, reading.buckets[target])
            if answers is not None:
                self._durations.add(target, answers, now)

    def percentile(self, target: ScaleTargetName, percent: float, now: float) -> Percentile | None:
        """Return this percentile of the last minute's response times; None: none was read."""
        return self._durations.percentile(target, percent, now)

    def _add_increases(self, accepted_increases: Sequence[_Increases], silent: Sequence[_Gateway]) -> None:
        """Add the increases of one tick.

        The increases of a gateway that was silent at earlier ticks are scaled down to the mean span of the
        others: its rates have stood for it until now. A gateway that is silent at this tick counts with its
        last rates.
        """
        spans = [each.seconds for each in accepted_increases if not each.was_estimated]
        if not spans:  # the shortest span has the fewest ticks that are counted already
            spans = [min(each.seconds for each in accepted_increases)]
        mean_span = sum(spans) / len(spans)
        for each in accepted_increases:
            factor = mean_span / each.seconds if each.was_estimated else 1.0
            for target, counts in each.counts.items():
                self._add_counts(target, counts, factor)
        for gateway in silent:
            gateway.was_estimated = True
            for target, rates in gateway.rates.items():
                self._add_counts(target, rates, mean_span)
        self._last_span = mean_span
        self._total_seconds += mean_span

    def _add_counts(self, target: ScaleTargetName, counts: Counts, factor: float) -> None:
        """Add counts times `factor`; for rates per second, `factor` is in seconds."""
        sums = self._sums.get(target)
        if sums is None:
            sums = self._sums[target] = _Sums(since=self._total_seconds)
        sums.arrivals += factor * counts.received
        sums.finished += factor * counts.answered
        sums.errors += factor * counts.errors
        sums.seconds += factor * counts.seconds
        sums.timed += factor * counts.timed

    def take(self, target: ScaleTargetName) -> Load | None:
        """Return the load of a target since the last call; None where no reading was accepted since.

        The first call for a target returns the load of the last tick with accepted increases.
        """
        taken_at = self._taken_at.get(target, self._total_seconds - self._last_span)
        seconds = self._total_seconds - taken_at
        if seconds <= 0:
            return None
        self._taken_at[target] = self._total_seconds
        sums = self._sums.pop(target, None) or _Sums(since=self._total_seconds)
        held = self._held.get(target, 0.0)  # included in the gateways' requests in flight
        return Load(
            start=self._end - seconds,
            end=self._end,
            arrivals=sums.arrivals,
            work=sums.arrivals,  # gateways count work in requests
            finished=sums.finished,
            in_flight=max(self._in_flight.get(target, 0.0) - held, 0.0),
            held=held,
            latency=sums.seconds / sums.timed if sums.timed > 0 else None,
            errors=sums.errors,
            idle=max(sums.since - taken_at, 0.0),
        )

    def is_busy(self, target: ScaleTargetName) -> bool:
        """Whether the target had a request since its load was taken, or has one now."""
        return target in self._sums or target in self._in_flight or bool(self._held.get(target))

    def age(self, now: float) -> float:
        """Return the seconds since the last accepted reading; infinite before the first."""
        return now - self._last_accepted_at

    def retain(self, targets: AbstractSet[ScaleTargetName]) -> None:
        """Remove the state of all targets but `targets`."""
        for target in self._taken_at.keys() - targets:
            del self._taken_at[target]
        for target in self._sums.keys() - targets:
            del self._sums[target]
        self._durations.retain(targets)

    @property
    def end(self) -> float:
        """Unix seconds, by the controllers' clock, of the end of the last load; 0 before the first."""
        return self._end

    def health(self, now: float) -> list[Health]:
        """Return the health of each gateway; a silence of less than `QUIET_SECONDS` is healthy."""
        health = []
        for name, gateway in sorted(self._gateways.items()):
            reason = gateway.rejection
            is_late = now - gateway.accepted_at > QUIET_SECONDS
            reported = reason if reason is not None and (reason.at_once or is_late) else None
            message = reported.message if reported is not None else ""
            health.append(Health(f"gateway-{name}", reported is None, message))
        return health
