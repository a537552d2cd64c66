"""Sockets that one component of a Pod keeps for another one, whose container kubelet restarts alone.

The containers of the Pod share the data directory and the network. On one machine `up` keeps sockets instead.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from serving.embedded.supervisor import liveness
from serving.system.network.kept_sockets import KeptSockets

ASK_SECONDS = 1.0
"""Between questions to the other component, as between those of `up` (`supervisor.ask_seconds`)."""
ANSWER_SECONDS = 1.0
"""Longest wait for an answer: a start waits as long for a component that hangs."""


async def recover(keeper: Path, kept: KeptSockets) -> None:
    """Take over what the component at this Unix socket keeps, if it answers."""
    answer = await liveness.ask(keeper, ANSWER_SECONDS)
    if answer is not None:
        kept.join(answer.descriptors)


@asynccontextmanager
async def keeping(owner: Path, kept: KeptSockets) -> AsyncIterator[None]:
    """Keep the sockets of the component at this Unix socket during the block, also while it does not run."""
    task = asyncio.create_task(_keep(owner, kept))
    try:
        yield
    finally:
        task.cancel()


async def _keep(owner: Path, kept: KeptSockets) -> None:
    while True:
        answer = await liveness.ask(owner, ANSWER_SECONDS)
        if answer is not None:
            answer.pass_to(kept)
        await asyncio.sleep(ASK_SECONDS)
