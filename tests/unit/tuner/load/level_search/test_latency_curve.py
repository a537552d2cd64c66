"""Curves of latency over load: their form, and their uncertainty by the windows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.load.level_search import latency_curve
from tuner.load.level_search.latency_curve import Kind, Points, ScatterPrior

PRIOR = ScatterPrior(scatter=0.2, worth=20, reach=1.5)
USERS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def points(loads: np.ndarray, seconds: np.ndarray, deviation: float = 0.01) -> Points:
    return Points(loads, np.log(seconds), np.full(len(loads), deviation))


def test_growth_is_linear_in_a_closed_loop_and_has_a_pole_in_an_open_one():
    rates, bends = np.array([0.1]), np.ones(1)
    closed = np.exp(latency_curve.growth("closed", rates, bends, np.array([10.0, 30.0])))
    opened = np.exp(latency_curve.growth("open", rates, bends, np.array([5.0, 9.0])))
    assert closed[0] == pytest.approx([2, 4])
    assert opened[0] == pytest.approx([2, 10])


def test_sharp_bend_is_two_asymptotes():
    grown = np.exp(
        latency_curve.growth("closed", np.array([1 / 16]), np.array([8.0]), np.array([1.0, 8.0, 32.0, 160.0]))
    )
    assert grown[0] == pytest.approx([1, 1, 2, 10], rel=0.01)


@settings(max_examples=40)
@given(alone=st.floats(1e-3, 1), each=st.floats(1e-5, 1), at=st.floats(1, 64))
def test_curve_is_found_when_windows_lie_on_it(alone: float, each: float, at: float):
    curve = latency_curve.through("closed", points(USERS, alone + each * USERS), PRIOR, near=at)
    mean, deviation = curve.at(np.array([at]))
    assert mean[0] == pytest.approx(math.log(alone + each * at), abs=0.12)
    assert deviation[0] < 0.2


def test_curve_of_a_queue_is_found_from_rates_below_its_capacity():
    rates = np.array([10.0, 30.0, 50.0, 70.0])
    curve = latency_curve.through("open", points(rates, 1 / (100 - rates)), PRIOR, near=60)
    mean, _ = curve.at(np.array([60.0]))
    assert math.exp(mean[0]) == pytest.approx(1 / 40, rel=0.1)


def test_one_stall_among_seven_windows_moves_the_curve_little():
    """The window of that load alone is three times as high, which is 1.1 in logarithms."""
    seconds = 0.01 + 0.001 * USERS
    stalled = np.where(USERS == 16, 3 * seconds, seconds)
    calm, moved = (
        latency_curve.through("closed", points(USERS, each), PRIOR, near=16).at(np.array([16.0]))[0][0]
        for each in (seconds, stalled)
    )
    assert 0 < moved - calm < 0.35


def test_stall_increases_deviation_and_scatter():
    seconds = 0.01 + 0.001 * USERS
    stalled = np.where(USERS == 16, 3 * seconds, seconds)
    calm, disturbed = (
        latency_curve.through("closed", points(USERS, each), PRIOR, near=16) for each in (seconds, stalled)
    )
    assert disturbed.scatter > calm.scatter
    assert disturbed.at(np.array([16.0]))[1][0] > calm.at(np.array([16.0]))[1][0]


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_deviation_falls_with_more_windows_and_grows_with_distance(kind: Kind):
    few, many = (
        latency_curve.through(kind, points(loads, np.full(len(loads), 0.05)), PRIOR, near=None)
        for loads in (USERS[:2], USERS)
    )
    at = np.array([4.0])
    assert many.at(at)[1][0] < few.at(at)[1][0]
    near, far = few.at(np.array([2.0, 50.0]))[1]
    assert far > 2 * near


def test_windows_near_the_given_load_have_more_weight():
    """No curve goes through all windows; the last two are near the given load."""
    loads, seconds = np.array([1.0, 2.0, 4.0, 200.0, 400.0]), np.array([0.1, 0.1, 0.1, 0.1, 0.8])
    at = np.array([400.0])
    anywhere, nearby = (
        latency_curve.through("closed", points(loads, seconds), PRIOR, near=near).at(at)[0][0]
        for near in (None, 400.0)
    )
    assert abs(nearby - math.log(0.8)) < abs(anywhere - math.log(0.8))


def test_growing_queue_is_a_lower_bound():
    rates, flat = np.array([100.0, 300.0, 600.0]), np.full(3, 0.046)
    beyond = points(np.array([900.0]), np.array([0.3]))
    free = latency_curve.through("open", points(rates, flat), PRIOR, near=600)
    ended = latency_curve.through("open", points(rates, flat), PRIOR, near=600, lower_bounds=beyond)
    at = np.array([800.0])
    assert ended.at(at)[0][0] > free.at(at)[0][0] + 0.1
    below = points(np.array([900.0]), np.array([0.001]))
    unchanged = latency_curve.through("open", points(rates, flat), PRIOR, near=600, lower_bounds=below)
    assert unchanged.at(at)[0][0] == pytest.approx(free.at(at)[0][0])


def test_given_start_is_kept():
    curve = latency_curve.through("closed", points(USERS, np.full(7, 2.0)), PRIOR, near=None, start=0.0)
    assert curve.at(np.array([1e-9]))[0][0] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_sampling_deviation_is_that_of_an_exponential_tail(percent: int):
    rng = np.random.default_rng(0)
    percentiles = np.log(np.percentile(rng.exponential(1.0, (2000, 1000)), percent, axis=1))
    assert float(latency_curve.sampling_deviation(np.array([1000.0]), percent)[0]) == pytest.approx(
        float(percentiles.std()), rel=0.1
    )
