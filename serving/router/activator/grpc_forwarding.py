"""Forwards the held requests of a backend whose replicas speak HTTP/2: calls of any gRPC method.

Messages are passed on as bytes. The messages of a held call are not read: HTTP/2's flow control stops their
sender, so that they wait in Envoy.
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
_SIZE_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
]
"""Messages have no limit here (-1, by default 4 MiB): the replica has its own."""
_CHANNEL_OPTIONS = [
    *_SIZE_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
]
"""gRPC waits a second, and later minutes, after a failed connection; a replica that starts is up earlier."""
_RESERVED_PREFIXES = ("grpc-", ":")
"""Metadata with these prefixes, and `user-agent`, are not forwarded: each hop sets its own."""
_STATUS_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}

Metadata = tuple[tuple[str, str | bytes], ...]


class _Answer:
    """A replica's answer to a call, of which the initial metadata has arrived."""

    def __init__(self, connection: contextlib.AsyncExitStack, call: Any, metadata: Metadata) -> None:
        """Args:
        connection: closes the channel to the replica.
        call: the call to the replica (`grpc.aio.StreamStreamCall`).
        metadata: the initial metadata of the answer.
        """
        self._connection = connection
        self._call = call
        self._metadata = metadata

    async def relay(self, context: Any) -> None:
        """Send the answer to the client: metadata, messages, and the status with its trailing metadata.

        Args:
            context: of the client's call (`grpc.aio.ServicerContext`).
        """
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
    """Bytes that it holds in memory: its messages are not read while it waits."""

    def __init__(
        self, method: str, messages: AsyncIterator[bytes], context: Any, replicas: "_ReplicaChannels"
    ) -> None:
        """Args:
        method: `/PACKAGE.SERVICE/METHOD`.
        messages: of the client, each as bytes.
        context: of the client's call (`grpc.aio.ServicerContext`).
        replicas: opens the channel to the chosen replica.
        """
        self._method = method
        self._messages = messages
        self._context = context
        self._replicas = replicas

    async def read(self, add_bytes: Callable[[int], None]) -> None:
        """Read nothing."""

    async def send(self, replica: Endpoint) -> _Answer:
        """Return the replica's answer, of which the initial metadata has arrived.

        A call that was sent is not repeated, as its messages have been read from the client.
        """
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
            if not name.startswith(_RESERVED_PREFIXES) and name != "user-agent"
        )


class _ReplicaChannels:
    """Channels to replicas: by TCP, or by their Unix sockets."""

    def __init__(self, sockets: Path, tunnels: Path, connect_seconds: float) -> None:
        """Args:
        sockets: the folder of the Pods' Unix sockets.
        tunnels: the folder for the Unix sockets of tunnels (`replica_connections.tunnel`).
        connect_seconds: the limit of one connection.
        """
        self._sockets = sockets
        self._tunnels = tunnels
        self._connect_seconds = connect_seconds

    @contextlib.asynccontextmanager
    async def open(self, replica: Endpoint) -> AsyncIterator[Any]:
        """Yield a connected channel, and close it afterwards.

        It connects before any call: after a failed connection another replica can get the call, but the error
        of a call would not distinguish a failed connection from a failed call.

        Raises:
            NotConnected: the connection failed, or takes too long.
        """
        async with contextlib.AsyncExitStack() as opened:
            name = addresses.authority(replica.address, replica.port)
            try:
                async with asyncio.timeout(self._connect_seconds):
                    target = f"{'ipv6' if ':' in replica.address else 'ipv4'}:{name}"
                    options: list[tuple[str, int | str]] = [*_CHANNEL_OPTIONS]
                    if replica.unix:
                        target = f"unix:{self._sockets / replica.socket}"
                    elif replica_connections.is_marked(replica.address):
                        # The replica's port may accept packets with the gateway's mark (SO_MARK) alone. gRPC
                        # cannot set it, so gRPC connects to a Unix socket, and the tunnel passes its bytes on
                        # over a marked TCP connection.
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
        self._server = grpc.aio.server(options=_SIZE_OPTIONS)
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
            await context.abort(_STATUS_BY_NUMBER[grpc_status.STATUS_OF[refused.http_status]], str(refused))
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
