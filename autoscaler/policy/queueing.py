"""The slots (each serves one request at a time) that limit the wait of random arrivals: M/M/c. Pure."""

import math

EXACT = 100.0
"""Requests in service up to which the probability of waiting is Erlang's; beyond it, the error of the limit
by Halfin and Whitt is less than 1 %."""


def slots(busy: float, service: float, wait: float, share: float) -> int:
    """Return the fewest slots with which at most `share` of the requests wait longer than `wait`; from 128
    slots on, up to 1/64 more than the fewest.

    P(W > t) = C(c, a) exp(-(c - a) t / S), with Erlang's C (Erlang 1917; Kleinrock, Queueing Systems I, 3.5).

    Args:
        busy: mean requests in service: arrivals per second times `service`.
        service: seconds of a request.
        wait: seconds that a request may wait.
        share: accepted share of the requests that wait longer, 0 to 1.
    """
    if busy <= 0 or service <= 0:
        return 0
    count = math.floor(busy) + 1
    step = max(count // 64, 1)
    blocked = _blocked(busy, count) if busy <= EXACT else 0.0
    while True:
        waits = _waits(busy, count, blocked)
        if waits * math.exp(-(count - busy) * wait / service) <= share:
            return count
        if busy <= EXACT:  # `step` is 1
            count += 1
            blocked = busy * blocked / (count + busy * blocked)
        else:
            count += step


def _waits(busy: float, count: int, blocked: float) -> float:
    """Return the probability that a request waits; `blocked` is Erlang's B, used only up to `EXACT`."""
    if busy <= EXACT:
        return count * blocked / (count - busy * (1 - blocked))
    # Halfin and Whitt 1981, with the density and the distribution function of the normal distribution.
    excess = (count - busy) / math.sqrt(busy)
    density = math.exp(-excess * excess / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + math.erf(excess / math.sqrt(2)))
    return density / (density + excess * below)


def _blocked(busy: float, count: int) -> float:
    """Return Erlang's B: the share of requests that find `count` busy slots in a system without a queue."""
    blocked = 1.0
    for slot in range(1, count + 1):
        blocked = busy * blocked / (slot + busy * blocked)
    return blocked
