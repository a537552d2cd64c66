"""Probes revisions through the gateway's private listener, on the path that traffic will take."""

from pathlib import Path

import aiohttp

from serving import errors, protobuf
from serving.planning.inference.plan import BackendProbe
from serving.system.network import http_reading

ANSWER_BYTES = 1024 * 1024
"""Longest answer to a probe, whose status alone counts: lists of models are shorter."""

_READY = (1, 1)
"""Field `ready` of a ServerReadyResponse with the value true."""


class Prober:
    """Sends requests over the gateway's Unix socket; a revision is proven only by success."""

    def __init__(self, socket: Path, timeout: float) -> None:
        """Must be called in a running event loop; `timeout` limits one request, in seconds."""
        self._socket = socket
        self._timeout = timeout
        self._session = http_reading.session("http://probe", aiohttp.UnixConnector(path=str(socket)))

    async def verdict(self, namespace: str, probe: BackendProbe) -> str | None:
        """Return the first failure of a request; None if every one succeeds."""
        for path in probe.paths:
            request = self._call if probe.h2c else self._get
            if failure := await request(f"/{namespace}/{probe.backend}{path}"):
                return f"{'gRPC' if probe.h2c else 'GET'} {path}: {failure}"
        return None

    async def _get(self, path: str) -> str | None:
        """Return why the path does not answer 200; None if it does."""
        try:
            page = await http_reading.get(self._session, path, limit=ANSWER_BYTES, seconds=self._timeout)
        except errors.Unavailable as error:
            return str(error)
        if page.status != 200:
            return f"{page.status} {' '.join(page.text.split())[:200]}".strip()
        return None

    async def _call(self, method: str) -> str | None:
        """Return why the method does not answer `ready: true`; None if it does.

        A server without this method is proven by its answer: it need not be one of the Open Inference
        Protocol, and its readiness probe has succeeded.
        """
        import grpc  # noqa: PLC0415 10 MB that only services with gRPC containers need

        async with grpc.aio.insecure_channel(f"unix:{self._socket}") as channel:
            call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
            try:
                response: bytes = await call(b"", timeout=self._timeout)
                is_ready = _READY in list(protobuf.parts(response))
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return None  # not of the gateway, which answers NOT_FOUND where it has no route
                return f"{error.code().name} {error.details()}"[:200].strip()
            except protobuf.Malformed as error:
                return f"not a ServerReadyResponse: {error}"
        return None if is_ready else "ready is false"

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
