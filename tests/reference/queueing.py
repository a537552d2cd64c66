"""A target as queueing theory has it: so many servers, first come first served; what a generator would have recorded of it."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tuner.load.plan import Mode
from tuner.load.windows.samples import Samples

LONGEST = 30.0


@dataclass
class Target:
    """`service(rng)` is what one request takes alone, in seconds."""

    service: Callable[[np.random.Generator], float]
    servers: int = 1
    failing: float = 0.0
    seed: int = 0
    busy: float = 0.0
    """Share of its core that the generator says it used."""
    seconds: float = 0.0
    """Of load so far."""
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def window(self, mode: Mode, level: float, seconds: float) -> Samples:
        """From an idle target, after a second that is not recorded."""
        self.seconds += seconds
        rows = self._closed(round(level), seconds + 1) if mode == "closed" else self._open(level, seconds + 1)
        intended, done = (
            np.array(column) - 1 for column in zip(*sorted(rows, key=lambda r: r[1]), strict=True)
        )
        kept = (done >= 0) & (done < seconds)
        waiting = (intended < seconds) & (done >= seconds)
        count = int(kept.sum())
        return Samples(
            mode=mode, level=level, seconds=seconds, intended=intended[kept], latency=(done - intended)[kept],
            ok=self.rng.random(count) >= self.failing, tokens=np.zeros(count, dtype=np.int64),
            ttft=np.full(count, -1.0), itl=np.empty(0), itl_done=np.empty(0), unfinished=seconds - intended[waiting], longest=LONGEST,
            generator_cpu=self.busy,
        )  # fmt: skip

    def _closed(self, users: int, until: float) -> list[tuple[float, float]]:
        free = [0.0] * self.servers
        asking = [(0.0, user) for user in range(users)]
        rows = []
        while asking[0][0] < until:
            sent, user = heapq.heappop(asking)
            done = max(sent, heapq.heappop(free)) + self.service(self.rng)
            heapq.heappush(free, done)
            heapq.heappush(asking, (done, user))
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
class Batching:
    """A target that computes everybody's requests at once; in the whole windows (from 1.5 s) that `stalled` counts, from 0, every thirtieth takes three times as long."""

    stalled: tuple[int, ...] = ()
    refuses_from: float = math.inf
    """Users from which on it refuses every tenth request."""
    whole: int = -1

    def window(self, mode: Mode, level: float, seconds: float) -> Samples:
        self.whole += seconds >= 1.5
        rng = np.random.default_rng(round(level))
        count = round(seconds * level / (0.01 + 0.0005 * level))
        latency = (0.01 + 0.0005 * level) * rng.lognormal(0, 0.15, count)
        if self.whole in self.stalled and seconds >= 1.5:
            latency[::30] *= 3
        done = (np.arange(count) + 0.5) * seconds / count
        ok = (np.arange(count) % 10 != 0) | (level < self.refuses_from)
        return Samples(
            mode=mode, level=level, seconds=seconds, intended=done - latency, latency=latency, ok=ok,
            tokens=np.zeros(count, dtype=np.int64), ttft=np.full(count, -1.0), itl=np.empty(0), itl_done=np.empty(0),
            unfinished=np.empty(0), longest=LONGEST,
        )  # fmt: skip


def exponential(mean: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(rng.exponential(mean))


def steady_service(mean: float, spread: float = 0.1) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(mean * rng.lognormal(0, spread))
