"""A stack for the files of tests of this directory that a worker runs."""

from collections.abc import AsyncIterator, Iterator

import pytest

from serving.kube import Kube
from serving.resources import kinds
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import LiveStack, SharedStack


@pytest.fixture(scope="package")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedStack]:
    shared = SharedStack(lambda: tmp_path_factory.mktemp("stack"))
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Iterator[LiveStack]:
    yield from shared_stack.lend()


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the Inference `digits` serves two arms, 90 to 10."""
    arms = stacks.predictors(stable=("v-1", 90), canary=("v-2", 10))
    async with stacks.deployed(stack, "digits", arms) as client:
        await stacks.until(client, kinds.INFERENCE, "digits", stacks.settled)
        yield client
