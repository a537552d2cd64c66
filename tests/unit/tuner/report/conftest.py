"""One experiment's report, made once for all tests that read it."""

import datetime as dt
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from tests import measured_experiments
from tuner.report import content

NOW = dt.datetime(2026, 11, 22, 5, 0, tzinfo=dt.UTC)


@pytest.fixture(scope="session")
def report() -> dict[str, Any]:
    with threadpool_limits(1):
        return content.of(*measured_experiments.story(), NOW)
