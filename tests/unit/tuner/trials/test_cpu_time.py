"""Busy time of cores from /proc/stat."""

from pathlib import Path

import pytest

from tuner.trials import cpu_time

STAT = """cpu  300 0 100 900 100 0 0 0 0 0
cpu0 100 10 50 500 60 5 5 30 20 1
cpu1 200 0 50 400 40 0 0 0 0 0
intr 1 2 3
"""


def test_busy_seconds_exclude_idle_time_and_count_guests_once() -> None:
    assert cpu_time.busy_seconds(STAT, [0], 100) == pytest.approx(2.0)
    assert cpu_time.busy_seconds(STAT, [0, 1], 100) == pytest.approx(4.5)


def test_busy_seconds_are_none_for_an_unknown_core() -> None:
    assert cpu_time.busy_seconds(STAT, [0, 7], 100) is None
    assert cpu_time.busy_seconds("", [0], 100) is None


def test_busy_seconds_are_none_for_another_machine() -> None:
    assert cpu_time.busy_seconds_at("10.1.2.3", [0]) is None
    if Path("/proc/stat").exists():
        assert cpu_time.busy_seconds_at("127.77.0.2", [0]) is not None
