"""The demo's clients: two processes of `serving.cli.demo.load`, which send requests and report results."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable

import orjson

from serving import errors
from serving.cli.demo.report import RequestResult

PROCESSES = 2
"""Enough to have requests in flight at once, few enough to leave cores to the models."""
POLL_SECONDS = 0.1


@contextlib.asynccontextmanager
async def started(url: str, model: str) -> AsyncIterator["Clients"]:
    """Start the processes, which takes seconds; the context ends them."""
    clients = Clients()
    try:
        for seed in range(PROCESSES):
            await clients.add("--url", url, "--model", model, "--seed", str(seed))
        yield clients
    finally:
        await clients.end()


class Clients:
    """Sends requests and collects the results in `rows`, in the order of their arrival."""

    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []
        self._reading: list[asyncio.Task[None]] = []
        self.rows: list[RequestResult] = []

    async def add(self, *arguments: str) -> None:
        """Start one more process in a session of its own, so that Ctrl-C reaches this program alone."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "serving.cli.demo.load",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        self._reading.append(asyncio.create_task(self._read(process.stdout)))

    def send(self, requests: int) -> None:
        """Send this many requests, divided evenly among the processes."""
        for number, process in enumerate(self._processes):
            assert process.stdin is not None
            part = (requests + number) // len(self._processes)  # all parts sum to `requests`
            process.stdin.write(b"%d\n" % part)

    async def until(self, count: int, report: Callable[[int], None]) -> None:
        """Wait until `rows` has `count` results; `report` gets their number.

        Raises:
            errors.UserError: a process has ended, so that the results of its requests are missing.
        """
        while len(self.rows) < count:
            for process, reading in zip(self._processes, self._reading, strict=True):
                if reading.done():
                    code = await process.wait()
                    raise errors.UserError(
                        f"a process that sends the demo's requests ended with exit code {code}, "
                        f"after {len(self.rows)} of {count} results"
                    )
            report(len(self.rows))
            await asyncio.sleep(POLL_SECONDS)

    async def end(self) -> None:
        """Kill the processes and wait for them."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
        await asyncio.gather(*self._reading)

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            if line.endswith(b"\n"):  # a killed process leaves half a line
                self.rows.append(RequestResult(*orjson.loads(line)))
