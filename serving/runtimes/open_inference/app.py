"""Serves the Open Inference Protocol v2 over ASGI: paths, bodies, compression, errors; gRPC through `grpc`.

Uses no web framework, as its import would add to every start.
https://github.com/open-inference/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from serving import errors, grpc_status
from serving.runtimes import request_body
from serving.runtimes.batching.predictions import Predictions
from serving.runtimes.large_requests import BodyRoom, LargeRequests, Prepared, many_values, too_many
from serving.runtimes.model import LoadedModel
from serving.runtimes.open_inference import compression, decoding_memory, protocol
from serving.runtimes.open_inference.protocol import InferenceRequest
from serving.runtimes.open_inference.tensors import TOO_LARGE, too_large
from serving.runtimes.request_body import Receive
from serving.runtimes.served_model import PROTOCOL_VERSION, ServedModel
from serving.settings import RuntimeSettings

if TYPE_CHECKING:
    from serving.runtimes.grpc.service import InferenceService

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]

_SERVER_PATHS = frozenset({"/v2", "/v2/health/live", "/v2/health/ready"})
_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|infer))?")


@dataclass(frozen=True)
class Reply:
    """A response before it is compressed and sent."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class InferenceApp:
    """One model behind the protocol's paths."""

    def __init__(
        self,
        model: LoadedModel,
        served: ServedModel,
        settings: RuntimeSettings,
        predictions: Predictions,
        large: LargeRequests,
    ) -> None:
        self._model = model
        self._large = large
        self._body_limit = min(settings.max_body_bytes, large.memory.bodies)
        self._small_bytes = min(decoding_memory.SMALL_BYTES, settings.max_body_bytes)
        self._served = served
        self._settings = settings
        self._predictions = predictions
        self._grpc: InferenceService | None = None

    def drain(self) -> None:
        """Report not ready from now on, and answer waiting requests soon; called when the process stops."""
        self._served.draining = True
        self._predictions.hurry()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._served.in_flight += 1
        try:
            reply = await self._reply(scope["method"], scope["path"], headers, receive)
            await self._send(reply, headers, send)
        finally:
            self._served.in_flight -= 1

    async def _reply(self, method: str, path: str, headers: Headers, receive: Receive) -> Reply:
        is_grpc = headers.get("content-type") == grpc_status.CONTENT_TYPE
        room = BodyRoom(self._large)
        try:
            # Before the body, which does not end where a client streams to a method that does not exist.
            method_of_grpc = self._inference_service().method(path) if is_grpc else None
            body = await self._body(headers, receive, room)
            if method_of_grpc is not None:
                message = await method_of_grpc(body, headers.get("grpc-encoding", ""), receive)
                return Reply(200, message, grpc_status.CONTENT_TYPE)
            return await self._route(method, path, headers, body, receive)
        except errors.ApiError as error:
            return _failed(error.code, error.message, is_grpc=is_grpc)
        except errors.Temporary as error:
            reply = _failed(503, str(error), is_grpc=is_grpc)
            retry_after = (b"retry-after", str(error.retry_after or 1).encode())
            return replace(reply, headers=(*reply.headers, retry_after))
        except Exception:  # noqa: BLE001 whatever the model raised, the client gets the protocol's error
            _log.exception("%s %s failed", method, path)
            return _failed(500, "the model failed; see its log", is_grpc=is_grpc)
        finally:
            room.release()

    def _inference_service(self) -> InferenceService:
        if self._grpc is None:
            # Imported with the first gRPC request: protobuf would add to every start.
            from serving.runtimes.grpc.service import InferenceService  # noqa: PLC0415

            self._grpc = InferenceService(
                self._model, self._served, self._settings, self._predictions, self._large
            )
        return self._grpc

    async def _route(self, method: str, path: str, headers: Headers, body: bytes, receive: Receive) -> Reply:
        path = path.rstrip("/")
        if path == "/v2/repository/index":
            _allow(method, "POST")
            return self._index()
        if match := _MODEL.fullmatch(path):
            name, version, action = match.groups()
            self._served.check(name, version)
            if action == "infer":
                _allow(method, "POST")
                return await self._infer(headers, body, receive)
            _allow(method, "GET")
            if action == "ready":
                return self._ready({"name": self._served.name, "ready": True})
            return _json(self._served.metadata(self._model))
        if path not in _SERVER_PATHS:
            raise errors.NotFound(404, "NotFound", f"no such path: {path}")
        _allow(method, "GET")
        return self._server(path)

    def _server(self, path: str) -> Reply:
        if path == "/v2/health/live":
            return _json({"live": True})
        if path == "/v2/health/ready":
            return self._ready({"ready": True})
        extensions = ["binary_tensor_data", "model_repository"]
        return _json(
            {"name": self._served.server_name, "version": PROTOCOL_VERSION, "extensions": extensions}
        )

    def _ready(self, document: Mapping[str, object]) -> Reply:
        """Return `document`, which KServe's client reads, or 503 while the process stops."""
        if self._served.draining:
            return Reply(503, protocol.error_body("stopping"))
        return Reply(200, orjson.dumps(document), headers=self._served.startup.headers())

    def _index(self) -> Reply:
        state = "UNAVAILABLE" if self._served.draining else "READY"
        reason = "stopping" if self._served.draining else ""
        return _json(
            [
                {
                    "name": self._served.name,
                    "version": self._served.version,
                    "state": state,
                    "reason": reason,
                }
            ]
        )

    async def _infer(self, headers: Headers, body: bytes, receive: Receive) -> Reply:
        json_length = headers.get(protocol.JSON_LENGTH_HEADER)
        encoding = headers.get("content-encoding", "")
        plain = compression.decompressed_within(body, encoding, self._small_bytes)
        if plain is not None:
            return await self._inferred(protocol.decode(plain, json_length), receive)
        prepare = partial(self._prepared, body, encoding, json_length)
        async with self._large.decoded(prepare) as request:
            return await self._inferred(request, receive)

    def _prepared(self, body: bytes, encoding: str, json_length: str | None) -> Prepared:
        """Decompress a large body, and check the memory of its decoding (`LargeRequests.decoded`)."""
        plain = compression.decompressed(body, encoding, self._settings.max_body_bytes)
        needed = protocol.needed_memory(plain, json_length)
        decoding_memory.check(needed, self._large.memory.decoding)
        return Prepared(needed, partial(protocol.decode, plain, json_length))

    async def _inferred(self, request: InferenceRequest, receive: Receive) -> Reply:
        """Return the response to a decoded request."""
        outputs = await self._predictions.infer(request, receive)
        encode = partial(
            protocol.encode, outputs, model=self._served.name, version=self._served.version, id_=request.id
        )
        encoded, json_length = await self._large.run(encode) if many_values(outputs) else encode()
        if json_length is None:
            return Reply(200, encoded)
        name = protocol.JSON_LENGTH_HEADER.encode()
        return Reply(200, encoded, "application/octet-stream", ((name, str(json_length).encode()),))

    async def _body(self, headers: Headers, receive: Receive, room: BodyRoom) -> bytes:
        """Return the complete body; one of more than `SMALL_BYTES` is counted in `room`."""
        limit = self._body_limit
        if int(headers.get("content-length", "0")) > limit:
            if "expect" not in headers:  # else the client waits for `100 Continue`, and sends no body
                await request_body.discard(receive)
            raise too_large(f"must be at most {limit} bytes", int(headers["content-length"]))
        chunks: list[bytes] = []
        size = 0
        has_more = True
        while has_more:
            part, has_more = request_body.part(await receive())
            chunks.append(part)
            size += len(part)
            is_large = size > decoding_memory.SMALL_BYTES
            if size > limit or (is_large and not room.grow(size)):
                chunks.clear()
                room.release()
                if has_more:
                    await request_body.discard(receive)
                if size > limit:
                    raise too_large(f"must be at most {limit} bytes", f"{size} or more")
                raise too_many(self._settings.retry_after_seconds)
        return b"".join(chunks)

    async def _send(self, reply: Reply, headers: Headers, send: Send) -> None:
        body = reply.body
        response_headers = [(b"content-type", reply.content_type.encode()), *reply.headers]
        encoding = compression.accepted_encoding(headers.get("accept-encoding", ""))
        may_compress = reply.content_type != grpc_status.CONTENT_TYPE  # which has a compression of its own
        if encoding and may_compress and len(body) >= self._settings.compress_from_bytes:
            compress = partial(compression.compressed, body, encoding)
            is_large = len(body) > decoding_memory.SMALL_BYTES
            body = await self._large.run(compress) if is_large else compress()
            response_headers.append((b"content-encoding", encoding.encode()))
        response_headers.append((b"content-length", str(len(body)).encode()))
        # After this answer a client that waits for `100 Continue` may send its body or another request, and
        # the server could not tell which.
        has_unread_body = reply.status == TOO_LARGE and "expect" in headers
        if has_unread_body or self._served.draining:
            response_headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": response_headers})
        await send({"type": "http.response.body", "body": body})


def _failed(status: int, message: str, *, is_grpc: bool) -> Reply:
    """Return the response of a failed request; that of gRPC has its status in headers, and no body."""
    if not is_grpc:
        return Reply(status, protocol.error_body(message))
    headers = grpc_status.headers(status, message)
    encoded = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return Reply(status, b"", grpc_status.CONTENT_TYPE, encoded)


def _json(document: Any) -> Reply:
    return Reply(200, orjson.dumps(document))


def _allow(method: str, allowed: str) -> None:
    if method != allowed:
        raise errors.ApiError(405, "MethodNotAllowed", f"method: must be {allowed}, got {method}")
