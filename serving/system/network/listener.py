"""Accepts connections without TLS: all that wait, in one turn of the event loop.

uvloop's servers accept one in each turn. In a turn a server answers every open connection, which takes an
overloaded one a third of a second; a probe then waits for its turn behind hundreds of new clients.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1024
"""Most connections that are accepted before open ones are answered."""
_PAUSE_SECONDS = 1.0
"""Before the next connection is accepted after an error, mostly of exhausted descriptors or memory."""


class Listener:
    """One listening socket; it accepts connections until `close`."""

    def __init__(
        self, listener: socket.socket, protocol_of: Callable[[], asyncio.Protocol], backlog: int
    ) -> None:
        """Begin to accept; must be called in a running event loop.

        Args:
            listener: the caller closes it after `close`.
            protocol_of: returns the protocol of a new connection.
            backlog: most connections that wait to be accepted.
        """
        listener.listen(backlog)
        listener.setblocking(False)  # noqa: FBT003 the socket module's own signature
        self._listener, self._protocol_of = listener, protocol_of
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._listener)
        if self._resume is not None:
            self._resume.cancel()

    async def wait_closed(self) -> None:
        """Wait until accepted connections have their protocols."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:  # its client has ended it
                continue
            except OSError as error:
                log.warning("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._resume = self._loop.call_later(
                    _PAUSE_SECONDS, self._loop.add_reader, self._listener, self._accept
                )
                return
            connection.setblocking(False)  # noqa: FBT003 as above
            task: asyncio.Task[object] = self._loop.create_task(
                self._loop.connect_accepted_socket(self._protocol_of, connection)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
