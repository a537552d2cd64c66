"""A stack for each file of tests."""

from collections.abc import Iterator

import pytest

from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import LiveStack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    yield from stacks.running(tmp_path_factory.mktemp("stack"))
