"""A replica for framework `custom` that speaks gRPC alone, on HOST:PORT.

    python grpc_replica.py

It has the inference service's `ServerReady` and `ModelInfer` (which answers with the version that it serves),
the health service, and `/tests.Echo/Echo` (any number of messages both ways, with trailing metadata) and
`/tests.Echo/Fail`. On SIGTERM it completes calls in flight.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc

from serving import protobuf

YES = protobuf.varint(1, 1)
"""`ready: true` of a ServerReadyResponse; `status: SERVING` of a HealthCheckResponse."""
LARGE_METADATA = [("grpc.max_metadata_size", 65_536), ("grpc.absolute_max_metadata_size", 65_536)]
UNHEALTHY = "tests.Unhealthy"
"""A service of which the health service says that it is not serving."""
REFUSED = "weight: must be positive, got -1 ü"


async def answer_yes(_requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    yield YES


async def check(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield protobuf.varint(1, 2) if UNHEALTHY.encode() in request else YES


async def infer(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for _ in requests:
        version = os.environ.get("SLIPWAY_MODEL_VERSION", "").encode()
        yield protobuf.field(1, b"m") + protobuf.field(2, version)


async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """Send every message back, and metadata whose names begin with `x-` as initial metadata."""
    own = [(name, value) for name, value in context.invocation_metadata() if name.startswith("x-a")]
    await context.send_initial_metadata(tuple(own))
    count = 0
    async for request in requests:
        count += 1
        yield request
    context.set_trailing_metadata((("x-count", str(count)), ("x-raw-bin", b"\x00\xff")))


async def fail(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for _ in requests:
        break
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, REFUSED, (("x-why", "weight"),))
    yield b""


SERVICES = {
    "inference.GRPCInferenceService": {"ServerReady": answer_yes, "ModelInfer": infer},
    "grpc.health.v1.Health": {"Check": check},
    "tests.Echo": {"Echo": echo, "Fail": fail},
}


async def serve(address: str) -> grpc.aio.Server:
    """Return a server that listens on HOST:PORT."""
    options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1), *LARGE_METADATA]
    server = grpc.aio.server(options=options)
    for service, methods in SERVICES.items():
        handlers = {name: grpc.stream_stream_rpc_method_handler(method) for name, method in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(address)
    await server.start()
    return server


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    server = await serve(f"{os.environ['HOST']}:{os.environ['PORT']}")
    await stopping.wait()
    await server.stop(10)


if __name__ == "__main__":
    asyncio.run(main())
