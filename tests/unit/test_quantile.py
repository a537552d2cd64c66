"""Quantiles are values of the sample, at the rank that exact arithmetic gives."""

from hypothesis import example, given
from hypothesis import strategies as st

from serving.quantile import nearest_rank


@given(st.integers(0, 100), st.integers(1, 2_000))
@example(7, 100)  # 0.07 * 100 is 7.000000000000001
@example(14, 50)
def test_rank_is_exact_when_the_share_is_no_binary_fraction(percent: int, count: int) -> None:
    exact = -(-percent * count // 100)
    assert nearest_rank(range(1, count + 1), percent / 100) == max(exact, 1)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_quantile_is_one_of_the_values_and_does_not_fall_when_the_share_grows(
    values: list[float], share: float
) -> None:
    assert nearest_rank(values, share) in values
    assert min(values) <= nearest_rank(values, share) <= nearest_rank(values, 1) == max(values)
