"""The arrival times of an open loop: drawn from a seed, independent of the target."""

import itertools
import random
from collections.abc import Iterator, Sequence

from tuner.load.plan import LoadRequest


def poisson(seed: int, number: int) -> Iterator[float]:
    """Yield the gaps of a Poisson process of rate 1 for process `number`; their sum is Poisson, too."""
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 arrivals, not secrets
    while True:
        yield draw.expovariate(1.0)


def recorded(requests: Sequence[LoadRequest], number: int, processes: int) -> Iterator[float]:
    """Yield the recorded gaps, scaled to a mean rate of 1 in each process; they take requests in turn.

    The recording repeats, a mean gap after its last request.
    """
    moments = [request.at or 0.0 for request in requests]
    span = moments[-1] - moments[0]
    mean = span / max(1, len(moments) - 1) or 1.0
    length = len(moments) * mean  # also of a single burst, which has no span
    before = moments[0]
    for turn in itertools.count(number, processes):
        again, index = divmod(turn, len(moments))
        moment = moments[index] + again * length
        yield (moment - before) / (mean * processes)
        before = moment
