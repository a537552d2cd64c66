"""uvicorn's server for processes that may idle for days, and end by their owner's word alone."""

import asyncio
import contextlib
from collections.abc import Iterator

import uvicorn


class AsgiServer(uvicorn.Server):
    """Serves until `stop`; the date header of the configuration must be off.

    uvicorn itself wakes ten times a second, to look whether it has to end and which date its answers have.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Stop accepting connections, and finish the requests in flight."""
        self.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner: uvicorn would raise them again after its end."""
        yield

    async def main_loop(self) -> None:
        """Wait for `stop`."""
        await self.on_tick(0)  # sets the headers of all answers
        await self._stopped.wait()
