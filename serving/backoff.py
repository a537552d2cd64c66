"""Exponential back-off. Pure."""

_MOST_DOUBLINGS = 1023
"""2 to a higher power overflows a float; a product beyond the range is infinite, which the cap bounds."""


def backoff_seconds(failures: int, base: float, cap: float) -> float:
    """Return the delay after this number of consecutive failures: 0 after none.

    After the first failure it is `base`; it doubles with each further one, up to `cap`.
    """
    if failures < 1:
        return 0.0
    return min(base * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), cap)
