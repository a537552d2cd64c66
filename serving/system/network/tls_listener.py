"""Accepts TLS connections, and bounds the connections whose handshake has not ended.

asyncio's servers bound the time of a handshake alone: clients that only connect take every descriptor.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 3.0
"""Longest TLS handshake, and longest wait for the peer's end of TLS, which both take milliseconds (asyncio:
60 s and 30 s)."""
MOST_HANDSHAKES = 512
"""Most unfinished handshakes; one more ends the oldest."""
_PAUSE_SECONDS = 1.0
"""Before the next connection is accepted after an error, mostly of exhausted descriptors or memory."""
_UNUSABLE = (errno.EBADF, errno.EINVAL)
"""Errors of a socket that does not listen, or no longer."""


class TlsListener:
    """One listening socket; it accepts connections until `close`."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        protocol_of: Callable[[], asyncio.Protocol],
        on_failure: Callable[[], None],
    ) -> None:
        """Begin to accept.

        Args:
            listener: listens already, and does not block; the caller closes it after `close`.
            context: of the server.
            protocol_of: returns the protocol of a new connection.
            on_failure: called if an error, and not `close`, ends the acceptance of connections.
        """
        self._listener, self._context, self._protocol_of = listener, context, protocol_of
        self._handshakes: OrderedDict[asyncio.Task[None], socket.socket] = OrderedDict()
        """Oldest first, without those that are ended because of the limit."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_failure = on_failure
        self._accepting = asyncio.create_task(self._accept_for_ever())
        self._accepting.add_done_callback(self._ended)

    def close(self) -> None:
        """Accept no more connections, and end unfinished handshakes."""
        self._accepting.cancel()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of the tasks that `close` cancelled."""
        await asyncio.gather(self._accepting, *self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.error("no more connections are accepted", exc_info=task.exception())
            self._on_failure()

    async def _accept_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except ConnectionAbortedError:  # its client has ended it
                continue
            except OSError as error:
                if error.errno in _UNUSABLE:
                    raise
                log.warning("no connection can be accepted: %s", error.strerror)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = loop.create_task(self._shake_hands(connection))
            self._handshakes[task] = connection
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            if len(self._handshakes) > MOST_HANDSHAKES:
                _, oldest = self._handshakes.popitem(last=False)
                with contextlib.suppress(OSError):  # its client has ended it
                    oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        self._tasks.discard(task)

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._protocol_of,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:  # the client's mistake, its end, or the time is over
            connection.close()
