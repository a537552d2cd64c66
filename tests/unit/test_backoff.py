"""The delay grows from its base to its cap and stays there, for any number of failures."""

from hypothesis import example, given
from hypothesis import strategies as st

from serving.backoff import backoff_seconds

SECONDS = st.floats(0.001, 1e8)
"""The range of a setting."""


@given(st.integers(0, 10**9), SECONDS, SECONDS)
@example(1_025, 0.2, 5.0)  # 2.0**1024 overflows
@example(10**9, 1e8, 1e8)  # so does 1e8 * 2.0**1023, without an error
def test_delay_grows_to_the_cap_and_stays_there_when_failures_go_on(
    failures: int, base: float, cap: float
) -> None:
    delay = backoff_seconds(failures, base, cap)
    assert delay <= backoff_seconds(failures + 1, base, cap) <= cap
    if failures > 50:
        assert delay == cap


@given(st.integers(1, 30), SECONDS)
def test_delay_doubles_when_a_failure_follows_below_the_cap(failures: int, base: float) -> None:
    assert backoff_seconds(failures, base, 1e300) == base * 2 ** (failures - 1)


def test_delay_is_nothing_when_nothing_has_failed() -> None:
    assert backoff_seconds(0, 1.0, 5.0) == 0.0
