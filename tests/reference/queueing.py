"""Targets of queueing theory, with a fixed number of servers and a first-in-first-out queue, as samples of a
load generator."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tuner.load.plan import Mode
from tuner.load.windows.samples import Samples

LONGEST = 30.0


@dataclass
class QueueingTarget:
    """A queue with `servers` servers; `service(rng)` is the service time of one request in seconds."""

    service: Callable[[np.random.Generator], float]
    servers: int = 1
    failing: float = 0.0
    seed: int = 0
    busy: float = 0.0
    """Share of its core that the generator used."""
    seconds: float = 0.0
    """Seconds of load so far."""
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def window(self, mode: Mode, level: float, seconds: float) -> Samples:
        """Return the samples of a window on an idle target, after one second that is not recorded."""
        self.seconds += seconds
        rows = self._closed(round(level), seconds + 1) if mode == "closed" else self._open(level, seconds + 1)
        intended, done = (
            np.array(column) - 1 for column in zip(*sorted(rows, key=lambda r: r[1]), strict=True)
        )
        kept = (done >= 0) & (done < seconds)
        waiting = (intended < seconds) & (done >= seconds)
        count = int(kept.sum())
        return Samples(
            mode=mode,
            level=level,
            seconds=seconds,
            intended=intended[kept],
            latency=(done - intended)[kept],
            ok=self.rng.random(count) >= self.failing,
            tokens=np.zeros(count, dtype=np.int64),
            prompt_tokens=np.zeros(count, dtype=np.int64),
            ttft=np.full(count, -1.0),
            itl=np.empty(0),
            itl_done=np.empty(0),
            unfinished=seconds - intended[waiting],
            longest=LONGEST,
            generator_cpu=self.busy,
        )

    def _closed(self, users: int, until: float) -> list[tuple[float, float]]:
        free = [0.0] * self.servers
        next_requests = [(0.0, user) for user in range(users)]
        rows = []
        while next_requests[0][0] < until:
            sent, user = heapq.heappop(next_requests)
            done = max(sent, heapq.heappop(free)) + self.service(self.rng)
            heapq.heappush(free, done)
            heapq.heappush(next_requests, (done, user))
            rows.append((sent, done))
        return rows

    def _open(self, rate: float, until: float) -> list[tuple[float, float]]:
        free = [0.0] * self.servers
        rows, sent = [], 0.0
        while sent < until:
            sent += self.rng.exponential(1 / rate)
            done = max(sent, heapq.heappop(free)) + self.service(self.rng)
            heapq.heappush(free, done)
            rows.append((sent, done))
        return rows


@dataclass
class BatchingTarget:
    """A target that computes the requests of all users in one batch."""

    stalled: tuple[int, ...] = ()
    """Numbers of the full windows, from 0, in which every thirtieth request takes three times as long."""
    refuses_from: float = math.inf
    """Number of users from which it refuses every tenth request."""
    full_window: int = -1
    """Number of the latest full window, of at least 1.5 s."""

    def window(self, mode: Mode, level: float, seconds: float) -> Samples:
        self.full_window += seconds >= 1.5
        rng = np.random.default_rng(round(level))
        count = round(seconds * level / (0.01 + 0.0005 * level))
        latency = (0.01 + 0.0005 * level) * rng.lognormal(0, 0.15, count)
        if self.full_window in self.stalled and seconds >= 1.5:
            latency[::30] *= 3
        done = (np.arange(count) + 0.5) * seconds / count
        ok = (np.arange(count) % 10 != 0) | (level < self.refuses_from)
        return Samples(
            mode=mode,
            level=level,
            seconds=seconds,
            intended=done - latency,
            latency=latency,
            ok=ok,
            tokens=np.zeros(count, dtype=np.int64),
            prompt_tokens=np.zeros(count, dtype=np.int64),
            ttft=np.full(count, -1.0),
            itl=np.empty(0),
            itl_done=np.empty(0),
            unfinished=np.empty(0),
            longest=LONGEST,
        )


@dataclass
class Pipeline:
    """A target of any capacity with answers of constant duration, whose load runs on between windows."""

    seconds: float
    """Of each answer."""
    now: float = 0.0
    sent: list[float] = field(default_factory=list)

    def run(self, mode: Mode, level: float, seconds: float) -> Samples:
        """Return the samples of the next seconds."""
        start, end = self.now, self.now + seconds
        pause = 1 / level if mode == "open" else self.seconds / level
        following = max(start, self.sent[-1] + pause) if self.sent else start
        while following < end:
            self.sent.append(following)
            following += pause
        self.now = end
        sent = np.array(self.sent)
        done = sent + self.seconds
        kept, waiting = (done >= start) & (done < end), done >= end
        count = int(kept.sum())
        return Samples(
            mode=mode,
            level=level,
            seconds=seconds,
            intended=sent[kept] - start,
            latency=np.full(count, self.seconds),
            ok=np.ones(count, dtype=np.bool_),
            tokens=np.zeros(count, dtype=np.int64),
            prompt_tokens=np.zeros(count, dtype=np.int64),
            ttft=np.full(count, -1.0),
            itl=np.empty(0),
            itl_done=np.empty(0),
            unfinished=end - sent[waiting],
            longest=LONGEST,
        )


def exponential(mean: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(rng.exponential(mean))


def steady_service(mean: float, spread: float = 0.1) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(mean * rng.lognormal(0, spread))
