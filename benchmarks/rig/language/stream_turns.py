"""Turns of streamed chats with one proxy after the other, made by a process on the load's core."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from rig.data_plane.proxies import LOAD_CORE
from rig.harness import process_seconds

LONGEST_LINE = 2**22
"""Bytes of a turn's result: some 20 for each chat."""


@dataclass(frozen=True)
class Turn:
    """Result of one turn."""

    first: list[float]
    """Times to the first token, in ms."""
    failed: int
    processor_seconds: float
    """Of the proxy, with its children."""


class StreamLoad:
    """The process of `stream_load.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def turn(self, url: str, pid: int, rate: float, seconds: float) -> Turn:
        """Load a proxy, and wait for all its answers.

        Args:
            url: of the proxy.
            pid: its process, or 0 for none.
            rate: chats per second.
            seconds: in which chats begin.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = _processor_seconds(pid)
        self._process.stdin.write(f"{rate} {seconds} {url}\n".encode())
        result = json.loads(await self._process.stdout.readline())
        return Turn(result["first"], result["failed"], _processor_seconds(pid) - before)


@contextlib.asynccontextmanager
async def stream_load(tokens: int) -> AsyncIterator[StreamLoad]:
    """Start the process, whose chats have this number of tokens."""
    program = str(Path(__file__).with_name("stream_load.py"))
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", LOAD_CORE, sys.executable, program, str(tokens),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LONGEST_LINE,
    )  # fmt: skip
    try:
        yield StreamLoad(process)
    finally:
        process.kill()
        await process.wait()


def _processor_seconds(pid: int) -> float:
    """CPU seconds of a process and its children, which LiteLLM may have."""
    if not pid:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return process_seconds(pid) + sum(process_seconds(int(child)) for child in children)
