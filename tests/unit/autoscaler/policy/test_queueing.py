"""Slots for requests that chance lets meet: against tables of Erlang's C, and by properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policy.queueing import EXACT, slots

ROOMY = 1e9
"""Seconds of wait that no request reaches."""


def erlang_c(count: int, busy: float) -> float:
    """Return the probability of waiting by the sum in which it is defined."""
    terms = [busy**k / math.factorial(k) for k in range(count)]
    last = busy**count / math.factorial(count) * count / (count - busy)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("busy", [0.3, 1.0, 4.5, 15.0, 60.0])
@pytest.mark.parametrize("share", [0.2, 0.01, 0.0005])
def test_slots_are_the_fewest_that_keep_the_share_when_nothing_may_wait(busy: float, share: float) -> None:
    count = slots(busy, 1.0, 0.0, share)
    assert erlang_c(count, busy) <= share
    assert count == math.floor(busy) + 1 or erlang_c(count - 1, busy) > share


def test_slots_of_one_server_are_those_of_the_queue_m_m_1_when_requests_may_wait() -> None:
    # P(W > t) = a exp(-(1 - a) t / S) is 0.5 exp(-3) = 0.025 at a = 0.5, S = 1 s, t = 6 s.
    assert slots(0.5, 1.0, 6.0, 0.026) == 1
    assert slots(0.5, 1.0, 6.0, 0.024) == 2


def test_the_limit_joins_the_exact_formula_when_busy_slots_pass_a_hundred() -> None:
    assert abs(slots(EXACT + 1, 1.0, 0.5, 0.001) - 1 - slots(EXACT, 1.0, 0.5, 0.001)) <= 1


@given(st.floats(0, 1e6), st.floats(1e-3, 1e3), st.floats(0, 1e3), st.floats(1e-6, 0.5))
def test_slots_exceed_the_busy_slots_and_are_finite_for_any_input(
    busy: float, service: float, wait: float, share: float
) -> None:
    count = slots(busy, service, wait, share)
    assert count > busy or count == busy == 0
    assert count <= busy + 10 * math.sqrt(busy) + busy / 32 + 40


def test_no_slot_is_needed_when_nothing_is_busy() -> None:
    assert slots(0.0, 1.0, 0.0, 0.01) == 0
    assert slots(5.0, 1.0, ROOMY, 0.01) == 6
