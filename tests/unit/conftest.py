"""Limits for unit tests: their time, and no process or file descriptor left behind."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import leaks

HERE = Path(__file__).parent
SECONDS = 30
"""A unit test takes milliseconds, on a busy machine some seconds: a longer one hangs."""
SLOW = tuple(
    HERE / name
    for name in (
        "autoscaler/forecast/test_forecaster.py",
        "autoscaler/policy/test_cron.py",
        "autoscaler/policy/test_latency.py",
        "autoscaler/policy/test_never.py",
        "autoscaler/policy/test_schedules.py",
        "autoscaler/policy/test_sizer.py",
        "autoscaler/signals/test_exposition.py",
        "tuner/load/level_search/test_highest_load.py",
    )
)
"""Properties over days of readings and searches take 5 to 60 s: only the limit of the suite holds."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limited_by_the_command_line = config.getoption("timeout") is not None  # `make fuzz` takes an hour
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        has_limit = limited_by_the_command_line or item.get_closest_marker("timeout") is not None
        if not has_limit and item.path not in SLOW:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _no_garbage_of_other_tests() -> None:
    """Collect what tests outside this folder left: its ResourceWarnings would fail a unit test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fail a test that leaves child processes or file descriptors behind."""
    before = leaks.snapshot()
    yield
    left = leaks.since(before)
    assert not left, f"left behind: {left}"
