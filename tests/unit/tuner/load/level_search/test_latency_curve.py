"""Latency over load: the curves have the forms that theory gives, and windows say as much of one as they know, and no more."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.load.level_search import latency_curve
from tuner.load.level_search.latency_curve import Kind, Points, ScatterPrior

BELIEF = ScatterPrior(scatter=0.2, worth=20, reach=1.5)
USERS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def points(loads: np.ndarray, seconds: np.ndarray, deviation: float = 0.01) -> Points:
    return Points(loads, np.log(seconds), np.full(len(loads), deviation))


def test_one_server_answers_users_in_turn_and_an_open_queue_has_a_pole():
    rates, bends = np.array([0.1]), np.ones(1)
    closed = np.exp(latency_curve.growth("closed", rates, bends, np.array([10.0, 30.0])))
    opened = np.exp(latency_curve.growth("open", rates, bends, np.array([5.0, 9.0])))
    assert closed[0] == pytest.approx([2, 4])
    assert opened[0] == pytest.approx([2, 10])


def test_a_sharp_bend_is_two_asymptotes():
    grown = np.exp(
        latency_curve.growth("closed", np.array([1 / 16]), np.array([8.0]), np.array([1.0, 8.0, 32.0, 160.0]))
    )
    assert grown[0] == pytest.approx([1, 1, 2, 10], rel=0.01)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(alone=st.floats(1e-3, 1), each=st.floats(1e-5, 1), at=st.floats(1, 64))
def test_what_windows_lie_on_is_found_between_them(alone: float, each: float, at: float):
    found = latency_curve.through("closed", points(USERS, alone + each * USERS), BELIEF, near=at)
    mean, deviation = found.at(np.array([at]))
    assert mean[0] == pytest.approx(math.log(alone + each * at), abs=0.12)
    assert deviation[0] < 0.2


def test_a_queue_is_found_from_rates_below_its_capacity():
    rates = np.array([10.0, 30.0, 50.0, 70.0])
    found = latency_curve.through("open", points(rates, 1 / (100 - rates)), BELIEF, near=60)
    mean, _ = found.at(np.array([60.0]))
    assert math.exp(mean[0]) == pytest.approx(1 / 40, rel=0.1)


def test_one_stall_among_seven_windows_moves_the_curve_little():
    """A window of that load alone would say three times as much, which is 1.1 more."""
    seconds = 0.01 + 0.001 * USERS
    stalled = np.where(USERS == 16, 3 * seconds, seconds)
    calm, other = (
        latency_curve.through("closed", points(USERS, each), BELIEF, near=16).at(np.array([16.0]))[0][0]
        for each in (seconds, stalled)
    )
    assert 0 < other - calm < 0.35


def test_a_stall_makes_the_curve_less_sure_and_its_windows_scatter_more():
    seconds = 0.01 + 0.001 * USERS
    stalled = np.where(USERS == 16, 3 * seconds, seconds)
    calm, other = (
        latency_curve.through("closed", points(USERS, each), BELIEF, near=16) for each in (seconds, stalled)
    )
    assert other.scatter > calm.scatter
    assert other.at(np.array([16.0]))[1][0] > calm.at(np.array([16.0]))[1][0]


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_more_windows_are_surer_and_what_is_far_from_them_is_not(kind: Kind):
    few, many = (
        latency_curve.through(kind, points(loads, np.full(len(loads), 0.05)), BELIEF, near=None)
        for loads in (USERS[:2], USERS)
    )
    at = np.array([4.0])
    assert many.at(at)[1][0] < few.at(at)[1][0]
    near, far = few.at(np.array([2.0, 50.0]))[1]
    assert far > 2 * near


def test_windows_near_the_load_that_matters_count_more():
    """No curve goes through all of them: the last two say what it is like there."""
    loads, seconds = np.array([1.0, 2.0, 4.0, 200.0, 400.0]), np.array([0.1, 0.1, 0.1, 0.1, 0.8])
    at = np.array([400.0])
    anywhere, there = (
        latency_curve.through("closed", points(loads, seconds), BELIEF, near=near).at(at)[0][0]
        for near in (None, 400.0)
    )
    assert abs(there - math.log(0.8)) < abs(anywhere - math.log(0.8))


def test_a_queue_that_grew_beyond_its_window_says_where_the_end_is():
    rates, flat = np.array([100.0, 300.0, 600.0]), np.full(3, 0.046)
    beyond = points(np.array([900.0]), np.array([0.3]))
    free = latency_curve.through("open", points(rates, flat), BELIEF, near=600)
    ended = latency_curve.through("open", points(rates, flat), BELIEF, near=600, least=beyond)
    at = np.array([800.0])
    assert ended.at(at)[0][0] > free.at(at)[0][0] + 0.1
    below = points(np.array([900.0]), np.array([0.001]))
    assert latency_curve.through("open", points(rates, flat), BELIEF, near=600, least=below).at(at)[0][
        0
    ] == pytest.approx(free.at(at)[0][0])


def test_a_start_that_is_known_is_kept():
    found = latency_curve.through("closed", points(USERS, np.full(7, 2.0)), BELIEF, near=None, start=0.0)
    assert found.at(np.array([1e-9]))[0][0] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_few_requests_leave_a_percentile_as_unsure_as_an_exponential_tail_does(percent: int):
    rng = np.random.default_rng(0)
    seen = np.log(np.percentile(rng.exponential(1.0, (2000, 1000)), percent, axis=1))
    assert float(latency_curve.sampling(np.array([1000.0]), percent)[0]) == pytest.approx(
        float(seen.std()), rel=0.1
    )
