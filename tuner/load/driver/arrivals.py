"""When an open loop sends; drawn before, from a seed, so that what the target does cannot change it."""

import itertools
import random
from collections.abc import Iterator, Sequence

from tuner.load.plan import LoadRequest


def poisson(seed: int, number: int) -> Iterator[float]:
    """Gaps of a Poisson process of rate 1 for process `number`; processes' arrivals together are Poisson again."""
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 of arrivals, not of secrets
    while True:
        yield draw.expovariate(1.0)


def recorded(requests: Sequence[LoadRequest], number: int, processes: int) -> Iterator[float]:
    """Gaps as they were recorded, made to a mean rate of 1 in each of the processes, which take requests in turn.

    After the last request the recording begins anew, a mean gap later.
    """
    moments = [request.at or 0.0 for request in requests]
    mean = (moments[-1] - moments[0]) / max(1, len(moments) - 1) or 1.0
    length = moments[-1] - moments[0] + mean
    before = moments[0]
    for turn in itertools.count(number, processes):
        again, index = divmod(turn, len(moments))
        moment = moments[index] + again * length
        yield (moment - before) / (mean * processes)
        before = moment
