"""Forwards the held requests of a backend whose replicas speak HTTP/2: calls of any gRPC method.

Messages are passed on as bytes. They wait in Envoy: a held call reads none, and HTTP/2 stops their sender.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc

from serving import grpc_status
from serving.router.activator.held_backend import DRAIN_SECONDS, HeldBackend, NotConnected, Refused
from serving.router.plan.service import Endpoint
from serving.system.network import addresses, replica_connections

_METADATA_BYTES = 64 * 1024
"""Above Envoy's limit of 60 KiB for the headers of a request and of an answer; gRPC's own is 8 KiB."""
_SIZES = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
]
"""gRPC's limit of 4 MiB for messages is the replica's to set."""
_CHANNEL = [*_SIZES, ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 500)]
"""gRPC waits a second, and later minutes, after a failed connection; a replica that starts is up earlier."""
_RESERVED = ("grpc-", ":")
"""Prefixes of metadata that each hop sets itself; so is `user-agent`."""
_STATUS = {code.value[0]: code for code in grpc.StatusCode}

Metadata = tuple[tuple[str, str | bytes], ...]


class _Answer:
    """A replica's answer to a call, of which the initial metadata has arrived."""

    def __init__(self, connection: contextlib.AsyncExitStack, call: Any, metadata: Metadata) -> None:
        self._connection = connection
        self._call = call
        self._metadata = metadata

    async def relay(self, context: Any) -> None:
        """Send the answer to the client: metadata, messages, and the status with its trailing metadata."""
        try:
            await context.send_initial_metadata(self._metadata)
            while (message := await self._call.read()) is not grpc.aio.EOF:
                await context.write(message)
            context.set_trailing_metadata(tuple(await self._call.trailing_metadata()))
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata()))
        finally:
            await self._connection.aclose()


class _GrpcRequest:
    """A call from Envoy."""

    size = 0
    """Bytes that it holds in memory."""

    def __init__(
        self, method: str, messages: AsyncIterator[bytes], context: Any, replicas: "_ReplicaChannels"
    ) -> None:
        self._method = method
        self._messages = messages
        self._context = context
        self._replicas = replicas

    async def read(self, add_bytes: Callable[[int], None]) -> None:
        """Read nothing."""

    async def send(self, replica: Endpoint) -> _Answer:
        """Return the replica's answer; a call that was sent is not repeated, as its messages are gone."""
        async with contextlib.AsyncExitStack() as connection:
            channel = await connection.enter_async_context(self._replicas.open(replica))
            call = channel.stream_stream(self._method)(
                self._messages, timeout=self._context.time_remaining(), metadata=self._metadata()
            )
            metadata = tuple(await call.initial_metadata())
            return _Answer(connection.pop_all(), call, metadata)

    def _metadata(self) -> Metadata:
        return tuple(
            (name, value)
            for name, value in self._context.invocation_metadata()
            if not name.startswith(_RESERVED) and name != "user-agent"
        )


class _ReplicaChannels:
    """Channels to replicas: by TCP, or by their Unix sockets."""

    def __init__(self, sockets: Path, tunnels: Path, connect_seconds: float) -> None:
        self._sockets = sockets
        self._tunnels = tunnels
        self._connect_seconds = connect_seconds

    @contextlib.asynccontextmanager
    async def open(self, replica: Endpoint) -> AsyncIterator[Any]:
        """Yield a connected channel, and close it afterwards.

        A call itself would not distinguish a failed connection from a failed call.

        Raises:
            NotConnected: the connection failed, or takes too long.
        """
        async with contextlib.AsyncExitStack() as opened:
            name = addresses.authority(replica.address, replica.port)
            try:
                async with asyncio.timeout(self._connect_seconds):
                    target = f"{'ipv6' if ':' in replica.address else 'ipv4'}:{name}"
                    options: list[tuple[str, int | str]] = [*_CHANNEL]
                    if replica.unix:
                        target = f"unix:{self._sockets / replica.socket}"
                    elif replica_connections.is_marked(replica.address):
                        # gRPC cannot mark its sockets.
                        tunnel = replica_connections.tunnel(self._tunnels, replica.address, replica.port)
                        target = f"unix:{await opened.enter_async_context(tunnel)}"
                        options.append(("grpc.default_authority", name))
                    channel = grpc.aio.insecure_channel(target, options=options)
                    opened.push_async_callback(channel.close)
                    await _connect(channel, name)
            except TimeoutError as error:
                raise NotConnected(f"{name}: no connection in {self._connect_seconds} s") from error
            except OSError as error:
                raise NotConnected(f"{name}: {error}") from error
            yield channel


async def _connect(channel: Any, name: str) -> None:
    """Wait for the connection of a channel.

    Raises:
        NotConnected: it failed.
    """
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise NotConnected(f"cannot connect to {name}")
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


class GrpcListener:
    """The socket to which Envoy sends one backend's calls."""

    def __init__(self, backend: HeldBackend, path: Path, *, sockets: Path, connect_seconds: float) -> None:
        """Args:
        backend: holds the calls.
        path: of the socket.
        sockets: the folder of the Pods' Unix sockets.
        connect_seconds: the limit of one connection.
        """
        self.backend = backend
        self._path = path
        self._replicas = _ReplicaChannels(sockets, path.parent, connect_seconds)
        self._server = grpc.aio.server(options=_SIZES)
        self._server.add_generic_rpc_handlers((_EveryMethod(self._handle),))

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be made.
        """
        try:
            self._server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise OSError(str(error)) from error
        await self._server.start()

    async def close(self) -> None:
        """Stop listening, and wait for the answers in flight."""
        self._path.unlink(missing_ok=True)
        await self._server.stop(DRAIN_SECONDS)

    async def _handle(self, method: str, messages: AsyncIterator[bytes], context: Any) -> None:
        try:
            answer = await self.backend.hold(_GrpcRequest(method, messages, context, self._replicas))
        except Refused as refused:
            await context.abort(_STATUS[grpc_status.STATUS_OF[refused.http_status]], str(refused))
        else:
            await answer.relay(context)


class _EveryMethod(grpc.GenericRpcHandler):  # type: ignore[misc, unused-ignore]
    """Handles every method of every service by the same function."""

    def __init__(self, handle: Callable[[str, AsyncIterator[bytes], Any], Any]) -> None:
        self._handle = handle

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of one call."""

        async def handle(messages: AsyncIterator[bytes], context: Any) -> None:
            await self._handle(handler_call_details.method, messages, context)

        return grpc.stream_stream_rpc_method_handler(handle)
