"""The Pareto front against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.report.pareto import efficient

POINTS = st.lists(st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float)), max_size=12)


@given(POINTS)
def test_front_has_the_points_that_no_other_beats(points: list[tuple[float, float]]):
    def beaten(p: tuple[float, float]) -> bool:
        return any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)

    assert efficient(points) == [not beaten(p) for p in points]


def test_front_has_both_of_two_equal_best_points():
    assert efficient([(1.0, 2.0), (1.0, 2.0), (1.0, 3.0)]) == [True, True, False]
