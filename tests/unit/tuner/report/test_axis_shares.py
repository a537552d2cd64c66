"""Shares of axes: the functional analysis of variance over a full grid."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.report.surfaces import shares

RANKS = np.array(list(product(range(3), range(2), range(4))), dtype=np.int64)


def test_share_of_an_axis_is_its_main_effect():
    by_axes = shares(5.0 * RANKS[:, 1] + 2.0, RANKS)
    assert by_axes[1,] == pytest.approx(1)
    assert sum(share for axes, share in by_axes.items() if axes != (1,)) == pytest.approx(0, abs=1e-12)


def test_share_of_a_pair_is_its_interaction():
    signs = np.where(RANKS[:, 1] == 1, 1.0, -1.0) * np.where(RANKS[:, 2] >= 2, 1.0, -1.0)
    by_axes = shares(signs, RANKS)
    assert by_axes[1, 2] == pytest.approx(1)
    assert by_axes[1,] == by_axes[2,] == pytest.approx(0, abs=1e-12)


def test_a_flat_space_has_no_shares():
    assert shares(np.full(len(RANKS), 7.0), RANKS) == {}


@given(st.lists(st.floats(-5, 5), min_size=len(RANKS), max_size=len(RANKS)))
def test_shares_are_not_negative_and_sum_to_one_at_most(values: list[float]):
    by_axes = shares(np.array(values), RANKS)
    assert all(share >= 0 for share in by_axes.values())
    assert sum(by_axes.values()) <= 1 + 1e-9


def test_shares_do_not_depend_on_the_order_of_rows():
    values = np.sin(np.arange(len(RANKS), dtype=float))
    order = np.random.default_rng(1).permutation(len(RANKS))
    assert shares(values[order], RANKS[order]) == pytest.approx(shares(values, RANKS))
