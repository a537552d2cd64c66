import numpy as np
import pytest

from tests.reference.known_surfaces import grid
from tuner.search.design import spread
from tuner.search.problem import features

SPACE = grid(range(5), range(9), range(5))


@pytest.mark.parametrize("count", [1, 4, 6, 500])
def test_specs_are_different_and_in_the_space(count):
    rows = spread(SPACE, count, np.random.default_rng(0))
    assert len(rows) == len(set(rows)) == min(count, SPACE.size)
    assert all(0 <= row < SPACE.size for row in rows)


def test_specs_are_further_apart_than_by_chance():
    points = features(SPACE)

    def nearest(rows) -> float:
        apart = np.linalg.norm(points[list(rows), None] - points[None, list(rows)], axis=2)
        return float(apart[~np.eye(len(apart), dtype=bool)].min())

    rng = np.random.default_rng(1)
    by_chance = np.mean([nearest(rng.choice(SPACE.size, 5, replace=False)) for _ in range(50)])
    assert (
        np.mean([nearest(spread(SPACE, 5, np.random.default_rng(seed))) for seed in range(10)])
        > 1.7 * by_chance
    )


def test_the_first_spec_is_in_the_middle_of_every_axis():
    for seed in range(5):
        (first,) = spread(SPACE, 1, np.random.default_rng(seed))
        assert SPACE.ranks[first].tolist() == [2, 4, 2]
        assert spread(SPACE, 3, np.random.default_rng(seed))[0] == first


def test_design_of_a_space_of_one_spec_is_that_spec_at_any_count():
    assert spread(grid((0.0,)), 3, np.random.default_rng(0)) == (0,)


def test_first_spec_is_any_of_those_equally_near_the_middle():
    even = grid(range(4), range(4))
    rows = {spread(even, 1, np.random.default_rng(seed))[0] for seed in range(40)}
    assert {tuple(even.ranks[row]) for row in rows} == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_categories_are_equally_far_from_each_other():
    space = grid(range(3), range(2), ordered=(False, True))
    points = features(space)
    apart = [np.linalg.norm(points[0] - points[row]) for row in (2, 4)]
    assert apart[0] == pytest.approx(apart[1])
