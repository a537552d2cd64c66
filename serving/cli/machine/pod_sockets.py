"""Keeps the sockets of one component of a Pod in another component, while kubelet restarts the first one.

The activator keeps the gateway's public socket, so that clients wait for the next Envoy and are not refused.
The containers of the Pod share the data directory and the network. On one machine `up` keeps the sockets.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from serving.embedded.supervisor import liveness
from serving.system.network.kept_sockets import KeptSockets

ASK_SECONDS = 1.0
"""Between two questions of the keeper to the owner, as between those of `up` (`supervisor.ASK_SECONDS`)."""
ANSWER_SECONDS = 1.0
"""Longest wait for an answer. A hung keeper delays the owner's start by this time."""


async def recover(keeper: Path, kept: KeptSockets) -> None:
    """Add the sockets that another component has kept to `kept`; none if it does not answer.

    `keeper` is the Unix socket of that component's liveness.
    """
    answer = await liveness.ask(keeper, ANSWER_SECONDS)
    if answer is not None:
        kept.join(answer.descriptors)


@asynccontextmanager
async def copies_kept(owner: Path, kept: KeptSockets) -> AsyncIterator[None]:
    """During the block, keep copies of another component's sockets in `kept`, also while it does not run.

    `owner` is the Unix socket of that component's liveness.
    """
    task = asyncio.create_task(_keep(owner, kept))
    try:
        yield
    finally:
        task.cancel()


async def _keep(owner: Path, kept: KeptSockets) -> None:
    while True:
        answer = await liveness.ask(owner, ANSWER_SECONDS)
        if answer is not None:
            answer.pass_to(kept)  # closes the copies of sockets that the owner has no more
        await asyncio.sleep(ASK_SECONDS)
