"""What gateways have counted, over time: load by target, and which gateways can be believed. Pure.

A gateway's counts never fall while its Envoy lives, its readings have times that advance, and no machine
takes a million requests a second; what says otherwise is left out, and said.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from autoscaler.observation import Load, Percentile
from autoscaler.signals import durations
from autoscaler.signals.durations import DurationWindow
from autoscaler.signals.exposition import Counts, Target

MOST_RATE = 1e6
"""Requests per second to one target by one gateway: ten times what an Envoy of many cores moves."""
MOST_IN_FLIGHT = 1e6
"""Likewise, ten times the gateway's limit on many cores."""
RESTARTED = 1.0
"""Seconds by which an Envoy's start must be later to be another one's: the same one's is computed from ticks."""
UNLIKE = 0.5
"""Share of the time that has passed by which two readings' times may be further apart or closer: clocks are set."""
SLACK = 2.0
"""Seconds of the same: a page may be a second older than the look at it."""
LATEST = 1e11
"""Unix seconds: three thousand years; what is later is no time."""
QUIET_SECONDS = 15.0
"""For so long a gateway may have nothing new before that is said: an Envoy that restarts takes less."""

_NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Reading:
    """One gateway's counts."""

    gateway: str
    read_at: float
    """Unix seconds by the gateway's clock."""
    started: float
    """Unix seconds of when its Envoy was."""
    counts: Mapping[Target, Counts]
    buckets: Mapping[Target, Mapping[float, float]] = field(default_factory=dict)
    """Answers by upper bound of their seconds."""
    timed: AbstractSet[Target] = frozenset()
    """Targets that `buckets` is of; one without answers is not in it."""


class Health(NamedTuple):
    """Whether a source can be believed."""

    source: str
    healthy: bool
    message: str = ""


class Doubt(NamedTuple):
    """Why a reading is left out."""

    words: str
    at_once: bool = True
    """Whether it is said at once; else when it lasts."""
    begins: bool = False
    """Whether the next reading is compared with this one all the same."""


_NO_PAGE = Doubt("its page does not answer", at_once=False)


@dataclass(slots=True)
class _Gateway:
    before: Reading | None = None
    heard: float = 0.0
    """Of `Board.tick`'s seconds, when the last plausible new reading was."""
    doubt: Doubt | None = None
    deltas: dict[Target, Counts] = field(default_factory=dict)
    """Of the last plausible reading, per second."""


@dataclass(slots=True)
class _Sums:
    """Of one target, since they were taken last."""

    since: float
    """Seconds of `Board._covered` at the beginning of the first reading with requests."""
    arrivals: float = 0.0
    finished: float = 0.0
    errors: float = 0.0
    seconds: float = 0.0
    timed: float = 0.0


def judge(before: Reading | None, reading: Reading, elapsed: float) -> Doubt | None:
    """Return why a reading cannot be believed; None if it can.

    Args:
        before: the last one of the same gateway.
        reading: the new one.
        elapsed: seconds between them, by a clock that nobody sets.
    """
    doubt = _alone(reading)
    if doubt is not None or before is None:
        return doubt
    if reading.read_at == before.read_at:
        return Doubt("it repeats its counts", at_once=False)
    if reading.started > before.started + RESTARTED:
        return None
    return _compared(before, reading, elapsed)


def _alone(reading: Reading) -> Doubt | None:
    if not (0 < reading.read_at < LATEST and 0 <= reading.started < LATEST):
        return Doubt("its page does not say when it was read")
    for target, counts in reading.counts.items():
        if not all(0 <= value < math.inf for value in counts):
            return Doubt(f"its counts of {target.name} are not numbers from 0 on")
        if counts.in_flight > MOST_IN_FLIGHT:
            return Doubt(f"it says that {target.name} has {counts.in_flight:.0f} requests in flight")
    return None


def _compared(before: Reading, reading: Reading, elapsed: float) -> Doubt | None:
    most = MOST_RATE * max(elapsed, 1.0)
    for target, counts in reading.counts.items():
        old = before.counts.get(target, _NOTHING)
        if counts == old:
            continue
        if counts.received < old.received or counts.answered < old.answered or counts.timed < old.timed:
            return Doubt(f"its counts of {target.name} have fallen, and its Envoy is the same", begins=True)
        more = counts.received - old.received
        if more > most:
            return Doubt(
                f"it says that {target.name} had {more:.0f} requests in {elapsed:.0f} s", begins=True
            )
    return None


def rise(before: Reading, reading: Reading, wanted: AbstractSet[Target]) -> dict[Target, Counts]:
    """Return what was counted between two readings of one gateway, of what has had any; gauges are the later ones."""
    is_new = reading.started > before.started + RESTARTED
    old = {} if is_new else before.counts
    counts_by_target = {}
    for target, counts in reading.counts.items():
        earlier = old.get(target, _NOTHING)
        if (counts == earlier and not counts.in_flight) or target not in wanted:
            continue
        parts = (max(now - then, 0.0) for now, then in zip(counts, earlier, strict=True))
        counts_by_target[target] = Counts(*parts)._replace(in_flight=counts.in_flight)
    return counts_by_target


def span(before: Reading, reading: Reading, elapsed: float) -> float:
    """Return the seconds between two readings: by the gateway's clock, or by ours where that one was set."""
    reported = reading.read_at - before.read_at
    return reported if abs(reported - elapsed) <= SLACK + UNLIKE * elapsed else max(elapsed, 0.1)


def _news(
    gateway: _Gateway, reading: Reading | None, now: float, wanted: AbstractSet[Target]
) -> tuple[float, dict[Target, Counts]] | None:
    """Return the seconds of a new reading and what rose in them; None where there is nothing to believe."""
    if reading is None:
        gateway.doubt = _NO_PAGE
        return None
    before, elapsed = gateway.before, now - gateway.heard
    gateway.doubt = judge(before, reading, elapsed)
    if gateway.doubt is not None:
        if gateway.doubt.begins:
            gateway.before = reading
        return None
    gateway.before, gateway.heard = reading, now
    if before is None:
        return 0.0, {
            target: Counts(in_flight=counts.in_flight)
            for target, counts in reading.counts.items()
            if counts.in_flight and target in wanted
        }
    seconds = span(before, reading, elapsed)
    rates = rise(before, reading, wanted)
    gateway.deltas = {
        target: Counts(*(value / seconds for value in counts))._replace(in_flight=counts.in_flight)
        for target, counts in rates.items()
    }
    return seconds, rates


class Board:
    """Load of targets, summed over gateways."""

    def __init__(self) -> None:
        self._gateways: dict[str, _Gateway] = {}
        self._sums: dict[Target, _Sums] = {}
        self._in_flight: dict[Target, float] = {}
        self._held: Mapping[Target, float] = {}
        self._taken: dict[Target, float] = {}
        """Seconds of `_covered` up to which a target's load was taken."""
        self._durations = DurationWindow()
        self._covered = 0.0
        """Seconds that readings are about, all together."""
        self._step = 0.0
        self._end = 0.0
        self._complete = -math.inf
        self.is_whole = False
        """Whether every gateway that is alive gave a plausible reading at the last tick."""

    def tick(
        self,
        readings: Iterable[Reading],
        live: AbstractSet[str],
        wanted: AbstractSet[Target],
        held: Mapping[Target, float],
        now: float,
    ) -> None:
        """Take what was read.

        Args:
            readings: of every gateway whose page has answered.
            live: gateways that are alive by their Leases.
            wanted: targets of which load is taken.
            held: requests that activators hold, by target.
            now: seconds on a clock that nobody sets.
        """
        by_gateway = {reading.gateway: reading for reading in readings}
        rises: list[tuple[float, float, dict[Target, Counts]]] = []
        for name in self._gateways.keys() - by_gateway.keys() - live:
            del self._gateways[name]
        in_flight: dict[Target, float] = {}
        silent: list[_Gateway] = []
        for name in sorted(by_gateway.keys() | live):
            gateway = self._gateways.get(name)
            if gateway is None:
                gateway = self._gateways[name] = _Gateway(heard=now)
            before = gateway.before
            news = _news(gateway, by_gateway.get(name), now, wanted)
            if news is None:
                silent.append(gateway)
                continue
            seconds, rates = news
            if seconds > 0 and before is not None:
                self._time(before, by_gateway[name], now)
                rises.append((seconds, by_gateway[name].read_at, rates))
            for target, counts in rates.items():
                if counts.in_flight:
                    in_flight[target] = in_flight.get(target, 0.0) + counts.in_flight
        self._held = held
        self.is_whole = bool(self._gateways) and not silent
        if rises:
            self._add(rises, silent)
            for gateway in silent:  # what it had before counts on, so that nothing seems to have become less
                for target, counts in gateway.deltas.items():
                    in_flight[target] = in_flight.get(target, 0.0) + counts.in_flight
            self._in_flight, self._complete = in_flight, now

    def _time(self, before: Reading, reading: Reading, now: float) -> None:
        """Take the durations of the answers between two plausible readings of one gateway."""
        is_new = reading.started > before.started + RESTARTED
        timed = reading.timed & before.timed
        self._durations.read(timed, now)
        for target in timed & reading.buckets.keys():
            earlier = None if is_new else before.buckets.get(target)
            answers = durations.rise(earlier, reading.buckets[target])
            if answers is not None:
                self._durations.add(target, answers, now)

    def percentile(self, target: Target, percent: float, now: float) -> Percentile | None:
        """Return the seconds within which `percent` of 100 answers of the last minute came; None: none was read."""
        return self._durations.of(target, percent, now)

    def _add(self, rises: list[tuple[float, float, dict[Target, Counts]]], silent: list[_Gateway]) -> None:
        """Add what rose; a gateway that had been silent for longer adds its share of the time that others tell of."""
        least = min(seconds for seconds, _, _ in rises)
        usual = [seconds for seconds, _, _ in rises if seconds <= 2 * least]
        step = sum(usual) / len(usual)
        for seconds, _, rates in rises:
            factor = 1.0 if seconds <= 2 * least else step / seconds
            for target, counts in rates.items():
                self._put(target, counts, factor)
        for gateway in silent:
            for target, counts in gateway.deltas.items():
                self._put(target, counts, step)
        self._step = step
        self._covered += step
        self._end = max(at for _, at, _ in rises)

    def _put(self, target: Target, counts: Counts, factor: float) -> None:
        sums = self._sums.get(target)
        if sums is None:
            sums = self._sums[target] = _Sums(since=self._covered)
        sums.arrivals += factor * counts.received
        sums.finished += factor * counts.answered
        sums.errors += factor * counts.errors
        sums.seconds += factor * counts.seconds
        sums.timed += factor * counts.timed

    def take(self, target: Target) -> Load | None:
        """Return a target's load since it was taken last; None: nothing new is known."""
        taken = self._taken.get(target, self._covered - self._step)
        seconds = self._covered - taken
        if seconds <= 0:
            return None
        self._taken[target] = self._covered
        sums = self._sums.pop(target, None) or _Sums(since=self._covered)
        held = self._held.get(target, 0.0)
        return Load(
            start=self._end - seconds,
            end=self._end,
            arrivals=sums.arrivals,
            work=sums.arrivals,
            finished=sums.finished,
            in_flight=max(self._in_flight.get(target, 0.0) - held, 0.0),
            held=held,
            latency=sums.seconds / sums.timed if sums.timed > 0 else None,
            errors=sums.errors,
            idle=max(sums.since - taken, 0.0),
        )

    def is_busy(self, target: Target) -> bool:
        """Whether there was any request since its load was taken last, or is one now."""
        return target in self._sums or target in self._in_flight or bool(self._held.get(target))

    def age(self, now: float) -> float:
        """Return the seconds since there was a plausible new reading; infinite before the first."""
        return now - self._complete

    def forget(self, keep: AbstractSet[Target]) -> None:
        """Remember only these targets."""
        for target in self._taken.keys() - keep:
            del self._taken[target]
        for target in self._sums.keys() - keep:
            del self._sums[target]
        self._durations.forget(keep)

    def health(self, now: float) -> list[Health]:
        """Return what is to be said of each gateway; a moment of silence is not news."""
        health = []
        for name, gateway in sorted(self._gateways.items()):
            doubt = gateway.doubt
            is_said = doubt is not None and (doubt.at_once or now - gateway.heard > QUIET_SECONDS)
            words = doubt.words if doubt is not None and is_said else ""
            health.append(Health(f"gateway-{name}", not is_said, words))
        return health
