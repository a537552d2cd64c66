import json
import math

import pytest

from autoscaler.forecast.profile import BIN, CLIP, DAY, WEEK, LoadProfile


def test_unobserved_phase_is_unknown() -> None:
    profile = LoadProfile(DAY)
    profile.learn(BIN / 2, 1.0)
    assert math.isnan(profile.at(DAY / 2))


def test_a_level_returns_a_day_later_when_it_was_seen_once() -> None:
    profile = LoadProfile(DAY)
    profile.learn(0.5 * BIN, 1.0)
    profile.learn(1.5 * BIN, 3.0)
    assert profile.at(DAY + 0.5 * BIN) == 1.0
    assert profile.at(DAY + BIN) == pytest.approx(2.0), "between two centres it is their mean"


def test_weekdays_differ_when_the_period_is_a_week() -> None:
    profile = LoadProfile(WEEK)
    for day in range(7):
        for place in (0.5, 1.5):
            profile.learn(day * DAY + place * BIN, float(day))
    assert [profile.at(WEEK + day * DAY + 0.5 * BIN) for day in range(7)] == list(range(7))


def test_an_odd_day_moves_a_level_little_when_several_were_seen() -> None:
    profile = LoadProfile(DAY)
    for day in range(5):
        for place in (0.5, 1.5):
            profile.learn(day * DAY + place * BIN, 1.0)
    profile.learn(5 * DAY + 0.5 * BIN, 9.0)
    assert 1.0 < profile.at(0.5 * BIN) <= 1.0 + CLIP + 1e-9


def test_a_lasting_change_is_learned_when_days_pass() -> None:
    profile = LoadProfile(DAY)
    for day in range(20):
        for place in (0.5, 1.5):
            profile.learn(day * DAY + place * BIN, 1.0 if day < 5 else 2.0)
    assert profile.at(0.5 * BIN) == pytest.approx(2.0, abs=0.01)


def test_levels_are_the_same_when_restored_from_json() -> None:
    profile, restored = LoadProfile(DAY), LoadProfile(DAY)
    for place in range(100):
        profile.learn((place + 0.5) * BIN, math.sin(place))
    restored.restore(**json.loads(json.dumps(profile.state())))
    for place in range(99):
        assert restored.at((place + 0.7) * BIN) == pytest.approx(profile.at((place + 0.7) * BIN), abs=1e-4)
    assert math.isnan(restored.at(200 * BIN))
    restored.restore([1.0], [1.0])
    assert math.isnan(restored.at(200 * BIN)), "another length is ignored"
