"""The report of one experiment, made once for all tests."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from tests.objects.tuning import measured_experiments
from tuner.report import content
from tuner.settings import DEFAULTS

NOW = dt.datetime(2026, 11, 22, 5, 0, tzinfo=dt.UTC)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Limit numpy to one thread: tests run in parallel and would compete for the cores."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def report(one_thread: None) -> dict[str, Any]:
    return content.of(*measured_experiments.story(), NOW, DEFAULTS)
