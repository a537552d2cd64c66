"""Waits for the Envoys that gateways in this process start."""

from collections.abc import Iterator

import pytest

from tests.rig.servers.gateway import envoys_have_ended


@pytest.fixture(autouse=True)
def _envoys_have_ended() -> Iterator[None]:
    with envoys_have_ended():
        yield
