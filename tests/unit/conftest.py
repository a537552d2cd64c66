"""Limits for unit tests: their time, warnings as errors, and no process or task left behind."""

import asyncio
import gc
import inspect
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS = 30
"""A unit test takes milliseconds, on a machine busy with other work some seconds: one that takes this long hangs."""
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
"""Properties over days of readings and simulated searches take 5 to 60 s, on a busy machine longer: only the limit of
the suite holds there."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limited_by_the_command_line = config.getoption("timeout") is not None  # `make fuzz` takes an hour
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        # Before the marks of the test, which may except a warning.
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)
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
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves child processes or asyncio tasks behind."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_no_task_left")
    before = _children()
    yield
    left = _children() - before
    assert not left, f"child processes left behind: {[_command(pid) for pid in left]}"


@pytest.fixture
async def _no_task_left() -> AsyncIterator[None]:
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # those that are ending may end
        _, left = await asyncio.wait(left, timeout=0.1)
    assert not left, f"tasks left behind: {left}"


def _children() -> set[str]:
    """Return the ids of the child processes, zombies included; none where /proc is missing."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def _command(pid: str) -> str:
    try:
        return f"{pid} {Path(f'/proc/{pid}/cmdline').read_text().replace(chr(0), ' ').strip() or 'zombie'}"
    except OSError:
        return pid
