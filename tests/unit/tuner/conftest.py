"""Fixtures of the tuner's pure parts."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Small matrices: threads that wait for each other take ten times as long as one alone."""
    with threadpool_limits(1):
        yield
