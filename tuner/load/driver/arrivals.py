"""The gaps between the requests of an open loop, independent of the target: drawn from a seed, or recorded.

Gaps have a mean of 1; divided by a process's rate, in requests per second, they are seconds.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

from tuner.load.plan import LoadRequest


def poisson(seed: int, number: int) -> Iterator[float]:
    """Yield the gaps of a Poisson process for locust process `number`.

    Each process has independent gaps; the requests of all processes together are a Poisson process, too.
    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 arrivals, not secrets
    while True:
        yield draw.expovariate(1.0)


def recorded(requests: Sequence[LoadRequest], number: int, processes: int) -> Iterator[float]:
    """Yield the recorded gaps between the requests of locust process `number`, scaled to a mean of 1.

    The processes take the requests in turn. The recording repeats, a mean gap after its last request.
    """
    moments = [request.at or 0.0 for request in requests]
    span = moments[-1] - moments[0]
    mean_gap = span / max(1, len(moments) - 1) or 1.0  # a single burst has no span
    length = len(moments) * mean_gap
    before = moments[0]
    for turn in itertools.count(number, processes):
        repetition, index = divmod(turn, len(moments))
        moment = moments[index] + repetition * length
        yield (moment - before) / (mean_gap * processes)
        before = moment
