"""Functional analysis of variance over a full grid."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.report.surfaces import shares

RANKS = np.array(list(product(range(3), range(2), range(4))), dtype=np.int64)


def test_what_one_axis_does_alone_is_its_share():
    found = shares(5.0 * RANKS[:, 1] + 2.0, RANKS)
    assert found[1,] == pytest.approx(1)
    assert sum(share for axes, share in found.items() if axes != (1,)) == pytest.approx(0, abs=1e-12)


def test_what_two_axes_do_only_together_is_the_pairs_share():
    signs = np.where(RANKS[:, 1] == 1, 1.0, -1.0) * np.where(RANKS[:, 2] >= 2, 1.0, -1.0)
    found = shares(signs, RANKS)
    assert found[1, 2] == pytest.approx(1)
    assert found[1,] == found[2,] == pytest.approx(0, abs=1e-12)


def test_a_flat_space_has_no_shares():
    assert shares(np.full(len(RANKS), 7.0), RANKS) == {}


@given(st.lists(st.floats(-5, 5), min_size=len(RANKS), max_size=len(RANKS)))
def test_shares_are_none_below_zero_and_at_most_all_together(values: list[float]):
    found = shares(np.array(values), RANKS)
    assert all(share >= 0 for share in found.values())
    assert sum(found.values()) <= 1 + 1e-9


def test_order_of_the_rows_does_not_matter():
    values = np.sin(np.arange(len(RANKS), dtype=float))
    order = np.random.default_rng(1).permutation(len(RANKS))
    assert shares(values[order], RANKS[order]) == pytest.approx(shares(values, RANKS))
