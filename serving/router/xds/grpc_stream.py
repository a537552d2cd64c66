"""The gRPC service that Envoy connects to: bytes in, bytes out, on a Unix socket. What they say is `delivery`'s."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from serving import errors
from serving.router.xds.server import Delivery

log = logging.getLogger(__name__)

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_METHOD = "DeltaAggregatedResources"
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
"""Ours and Envoy's messages are as large as what is stored; gRPC's limit of 4 MiB is for strangers."""
_GRACE_SECONDS = 0.1


@contextlib.asynccontextmanager
async def listening(delivery: Delivery) -> AsyncIterator[None]:
    """Serve one Envoy's stream while the block runs.

    Raises:
        errors.UserError: the socket cannot be listened on.
    """
    handler = grpc.stream_stream_rpc_method_handler(_Handler(delivery).stream)
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
    socket = delivery.sockets()["changes"]
    Path(socket).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise errors.UserError(f"cannot listen on {socket}: {error}") from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(_GRACE_SECONDS)


class _Handler:
    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    async def stream(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        """Answer until Envoy hangs up, or says what we do not understand."""
        responses: asyncio.Queue[bytes | None] = asyncio.Queue()
        conversation = self._delivery.connected(responses.put_nowait)

        async def read() -> None:
            try:
                async for request in requests:
                    await self._delivery.received(conversation, request)
            except (ValueError, errors.Unavailable) as error:
                log.warning("Envoy's stream: %s", error)
            finally:
                responses.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (response := await responses.get()) is not None:
                yield response
        finally:
            reading.cancel()
            self._delivery.disconnected(conversation)
