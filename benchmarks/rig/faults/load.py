"""Steady load on several services, each from a process of its own, and the answers so far."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from rig import open_load
from serving import clock

AHEAD_SECONDS = 2.0
"""Moments are sent to the clients so early: a pause of this process must not delay a request."""
CHUNK_SECONDS = 0.5
PATIENCE_SECONDS = 30.0
"""A client's own timeout."""
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ServiceAnswer:
    """One request."""

    service: str
    at: float
    """When it was to be sent, in seconds of the machine's monotonic clock."""
    latency: float
    """Seconds from then to the end of the answer."""
    status: int
    """0 without an answer."""
    error: str


class ServiceClient:
    """The requests of one service."""

    def __init__(self, service: str, rate: float, process: asyncio.subprocess.Process) -> None:
        self._service = service
        self._rate = rate
        self._process = process
        self._unanswered: set[float] = set()
        self.answers: list[ServiceAnswer] = []

    async def feed(self) -> None:
        """Send moments at the rate until cancelled."""
        assert self._process.stdin is not None
        following = clock.monotonic() + AHEAD_SECONDS
        while True:
            moments = [following + number / self._rate for number in range(int(self._rate * CHUNK_SECONDS))]
            self._unanswered.update(moments)
            self._process.stdin.write(orjson.dumps(moments) + b"\n")
            following += len(moments) / self._rate
            await asyncio.sleep(max(following - AHEAD_SECONDS - clock.monotonic(), 0.0))

    async def read(self) -> None:
        """Read answers until the process ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            at, latency, status, error = orjson.loads(line)
            self._unanswered.discard(at)
            self.answers.append(ServiceAnswer(self._service, at, latency, status, error))
        raise RuntimeError(f"the load of {self._service} has ended")

    async def until_answered(self, moment: float) -> None:
        """Wait for the answers to all requests before a moment."""
        while any(at < moment for at in self._unanswered):  # noqa: ASYNC110 another process says so
            await asyncio.sleep(POLL_SECONDS)

    def forget(self, moment: float) -> None:
        """Drop the answers to requests before a moment."""
        self.answers = [answer for answer in self.answers if answer.at >= moment]

    async def end(self) -> None:
        """Kill the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class ServicesLoad:
    """The requests of all services."""

    def __init__(self, clients: list[ServiceClient]) -> None:
        self._clients = clients

    async def between(self, begin: float, end: float) -> list[ServiceAnswer]:
        """Return the answers to the requests of a span in the order of time; forget earlier ones."""
        for client in self._clients:
            await client.until_answered(end)
            client.forget(begin)
        answers = [answer for client in self._clients for answer in client.answers if answer.at < end]
        return sorted(answers, key=lambda answer: answer.at)

    def last(self, seconds: float) -> list[ServiceAnswer]:
        """Return the answers that arrived so far to the requests of the last seconds."""
        begin = clock.monotonic() - seconds
        return [answer for client in self._clients for answer in client.answers if answer.at >= begin]


@contextlib.asynccontextmanager
async def steady(base: str, rates: Mapping[str, float], *, features: int) -> AsyncIterator[ServicesLoad]:
    """Send requests during the block.

    Args:
        base: URL of the namespace at the gateway.
        rates: requests per second of each Inference.
        features: length of the input.
    """
    clients = [
        ServiceClient(name, rate, await _process(base, name, features)) for name, rate in rates.items()
    ]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for client in clients for work in (client.feed(), client.read())]
            yield ServicesLoad(clients)
            for task in tasks:
                task.cancel()
    finally:
        for client in clients:
            await client.end()


async def _process(base: str, name: str, features: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(open_load.__file__)),
        f"{base}/{name}/v2/models/{name}/infer",
        *("--features", str(features)),
        *("--patience", str(PATIENCE_SECONDS)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
