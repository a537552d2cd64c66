"""The winners over prices and bounds, against an evaluation of every candidate at each price and bound."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from tuner.report.sensitivity import BoundReading, Line, envelope, log_score, staircase

AMOUNTS = st.integers(min_value=0, max_value=400).map(lambda n: n / 8)
LINES = st.lists(st.builds(Line, AMOUNTS, AMOUNTS), min_size=1, max_size=8)
READINGS = st.lists(
    st.lists(
        st.lists(st.builds(BoundReading, AMOUNTS, st.integers(1, 50).map(float)), max_size=4), max_size=2
    ),
    max_size=5,
)


@given(LINES, AMOUNTS)
def test_envelope_has_a_cheapest_line_at_every_price(lines: list[Line], price: float):
    spans = envelope(lines)
    (span,) = [span for span in spans if span.start <= price < span.end]
    assert span.winner is not None
    least = min(line.at(price) for line in lines)
    assert math.isclose(lines[span.winner].at(price), least, rel_tol=1e-9, abs_tol=1e-9)


@given(LINES)
def test_envelope_covers_all_prices_once_with_a_new_winner_in_each_span(lines: list[Line]):
    spans = envelope(lines)
    assert spans[0].start == 0
    assert spans[-1].end == math.inf
    for before, after in itertools.pairwise(spans):
        assert before.end == after.start > before.start
        assert before.winner != after.winner


@given(LINES)
def test_winners_on_both_sides_of_a_threshold_cost_the_same_there(lines: list[Line]):
    spans = envelope(lines)
    for before, after in itertools.pairwise(spans):
        assert before.winner is not None
        assert after.winner is not None
        old, new = lines[before.winner].at(after.start), lines[after.winner].at(after.start)
        assert math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-9)


def test_a_spec_with_many_cores_wins_below_the_crossing_of_the_lines():
    many_cores, few_cores = Line(base=1.0, slope=4.0), Line(base=3.0, slope=1.0)
    first, second = envelope([many_cores, few_cores])
    assert (first.winner, second.winner) == (0, 1)
    assert math.isclose(second.start, 2 / 3)


def test_envelope_of_equal_lines_has_the_first():
    assert [span.winner for span in envelope([Line(1.0, 2.0), Line(1.0, 2.0)])] == [0]


def test_envelope_of_no_lines_is_empty():
    assert envelope([]) == []


def best_score(specs: list[list[list[BoundReading]]], bound: float) -> float:
    """Return the best score at this bound by brute force; 0 where no spec is allowed."""
    best = 0.0
    for trials in specs:
        tops = [max((r.score for r in trial if r.value <= bound), default=0.0) for trial in trials]
        if tops and all(tops):
            best = max(best, math.prod(tops) ** (1 / len(tops)))
    return best


@given(READINGS, AMOUNTS)
def test_staircase_has_a_best_allowed_spec_at_every_bound(
    specs: list[list[list[BoundReading]]], bound: float
):
    (span,) = [span for span in staircase(specs) if span.start <= bound < span.end]
    best = best_score(specs, bound)
    if span.winner is None:
        assert best == 0
    else:
        assert math.isclose(math.exp(log_score(specs[span.winner], bound)), best, rel_tol=1e-9)


@given(READINGS)
def test_staircase_covers_all_bounds_once(specs: list[list[list[BoundReading]]]):
    spans = staircase(specs)
    assert spans[0].start == 0
    assert spans[-1].end == math.inf
    for before, after in itertools.pairwise(spans):
        assert before.end == after.start > before.start
        assert before.winner != after.winner


def test_a_spec_is_allowed_only_at_bounds_that_each_of_its_trials_met():
    lucky, again = [BoundReading(0.09, 50.0)], [BoundReading(0.11, 52.0)]
    steady = [[BoundReading(0.05, 10.0)]]
    spans = staircase([[lucky, again], steady])
    assert [(span.start, span.winner) for span in spans] == [(0.0, None), (0.05, 1), (0.11, 0)]


def test_a_bound_of_zero_allows_a_spec_with_a_reading_of_zero():
    assert staircase([[[BoundReading(0.0, 5.0)]]])[0].winner == 0
