"""A probe by gRPC's health protocol, as the kubelet's `grpc` probe.

https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from serving import protobuf

_METHOD = "/grpc.health.v1.Health/Check"
_SERVING = (1, 1)
"""Field `status` of a HealthCheckResponse with the value SERVING."""


async def problem(target: str, service: str, timeout: float, *, authority: str | None = None) -> str | None:
    """Return why the server is not healthy; None if it is.

    Args:
        target: gRPC's name of the server, `ipv4:ADDRESS:PORT` or `unix:PATH`.
        service: the service to ask for; empty for the server as a whole.
        timeout: seconds for the connection and the answer.
        authority: the server's name in the request, if it is not that of the target: the address and port
            of the Pod where the target is the socket of a tunnel to it.
    """
    import grpc  # noqa: PLC0415 10 MB of the node's memory, only where a container has such a probe

    request = protobuf.field(1, service.encode()) if service else b""
    # A channel of its own, as a shared one would wait a second after a failed connection.
    options: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
    if authority is not None:
        options.append(("grpc.default_authority", authority))
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        try:
            response: bytes = await channel.unary_unary(_METHOD)(request, timeout=timeout)
            is_healthy = _SERVING in list(protobuf.parts(response))
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {error.details()}".strip()
        except protobuf.Malformed as error:
            return f"not a HealthCheckResponse: {error}"
    return None if is_healthy else "the server says that it is not serving"
