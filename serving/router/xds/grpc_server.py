"""The gRPC service for Envoy, on a Unix socket. It carries bytes; `server` has the protocol."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from serving import errors
from serving.router.xds.server import DeltaXdsServer

log = logging.getLogger(__name__)

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_METHOD = "DeltaAggregatedResources"
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
"""Messages grow with the number of services; gRPC's limit of 4 MiB is for untrusted peers."""
_GRACE_SECONDS = 0.1
"""After this time at the gateway's end, Envoy's stream, which never ends by itself, is cut."""


@contextlib.asynccontextmanager
async def listening(server: DeltaXdsServer) -> AsyncIterator[None]:
    """Serve Envoy's stream while the block runs.

    Raises:
        errors.UserError: cannot listen on the socket.
    """
    handler = grpc.stream_stream_rpc_method_handler(_Handler(server).stream)
    grpc_server = grpc.aio.server(options=_OPTIONS)
    grpc_server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),)
    )
    socket = server.sockets()["changes"]
    Path(socket).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        grpc_server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise errors.UserError(f"cannot listen on {socket}: {error}") from error
    await grpc_server.start()
    try:
        yield
    finally:
        await grpc_server.stop(_GRACE_SECONDS)


class _Handler:
    def __init__(self, server: DeltaXdsServer) -> None:
        self._server = server

    async def stream(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        """Respond until Envoy closes the stream or `receive` raises an error for a request."""
        responses: asyncio.Queue[bytes | None] = asyncio.Queue()
        session = self._server.open_session(responses.put_nowait)

        async def read() -> None:
            try:
                async for request in requests:
                    await self._server.receive(session, request)
            except (ValueError, errors.Unavailable) as error:
                log.warning("Envoy's stream: %s", error)
            finally:
                responses.put_nowait(None)

        reader = asyncio.create_task(read())
        try:
            while (response := await responses.get()) is not None:
                yield response
        finally:
            reader.cancel()
            self._server.close_session(session)
