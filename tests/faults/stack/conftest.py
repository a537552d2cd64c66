"""A stack for each file of tests."""

from collections.abc import AsyncIterator, Iterator

import pytest

from serving.kube import Kube
from serving.resources import kinds
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import LiveStack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    yield from stacks.running(tmp_path_factory.mktemp("stack"))


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the Inference `digits` serves two arms, 90 to 10."""
    arms = stacks.predictors(stable=("v-1", 90), candidate=("v-2", 10))
    async with stacks.deployed(stack, "digits", arms) as client:
        await stacks.until(client, kinds.INFERENCE, "digits", stacks.settled)
        yield client
