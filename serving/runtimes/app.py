"""Serves the Open Inference Protocol v2 over ASGI: paths, bodies, compression, errors.

Uses no web framework, as its import would add to every start.
https://github.com/open-inference/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

import logging
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from serving import errors
from serving.images.documents.output_manifest import Input
from serving.runtimes import protocol
from serving.runtimes.model import Model, Output
from serving.runtimes.predictions import Predictions, Receive
from serving.runtimes.startup import StartupReport
from serving.runtimes.tensors import bad
from serving.settings import RuntimeSettings

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]

_WBITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""zlib's window bits: 16 more is the gzip format; HTTP's deflate is the zlib format (RFC 9110 §8.4.1.2)."""
_SERVER_PATHS = frozenset({"/v2", "/v2/health/live", "/v2/health/ready"})
_TOO_LARGE = 413
_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|infer))?")


@dataclass(frozen=True)
class Reply:
    """A response before it is compressed and sent."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass
class ServedModel:
    """The served model and the state of its server."""

    platform: str
    name: str
    version: str
    startup: StartupReport
    draining: bool = False
    """Set once, when the process begins to stop."""
    in_flight: int = field(default=0)


class InferenceApp:
    """One model behind the protocol's paths."""

    def __init__(
        self, model: Model, served: ServedModel, settings: RuntimeSettings, predictions: Predictions
    ) -> None:
        self._model = model
        self._served = served
        self._settings = settings
        self._predictions = predictions

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
        try:
            body = await self._body(headers, receive)
            return await self._route(method, path, headers, body, receive)
        except errors.ApiError as error:
            return Reply(error.code, protocol.error_body(error.message))
        except errors.Temporary as error:
            retry_after = str(error.retry_after or 1).encode()
            return Reply(503, protocol.error_body(str(error)), headers=((b"retry-after", retry_after),))
        except Exception:  # noqa: BLE001 whatever the model raised, the client gets the protocol's error
            _log.exception("%s %s failed", method, path)
            return Reply(500, protocol.error_body("the model failed; see its log"))

    async def _route(self, method: str, path: str, headers: Headers, body: bytes, receive: Receive) -> Reply:
        path = path.rstrip("/")
        if path == "/v2/repository/index":
            _allow(method, "POST")
            return self._index()
        if match := _MODEL.fullmatch(path):
            name, version, action = match.groups()
            self._check_model(name, version)
            if action == "infer":
                _allow(method, "POST")
                return await self._infer(headers, body, receive)
            _allow(method, "GET")
            if action == "ready":
                return self._ready({"name": self._served.name, "ready": True})
            return _json(self._metadata())
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
        name = f"slipway-{self._served.platform}"
        return _json({"name": name, "version": "2", "extensions": extensions})

    def _check_model(self, name: str, version: str | None) -> None:
        if name != self._served.name:
            raise errors.NotFound(404, "NotFound", f"model: must be {self._served.name!r}, got {name!r}")
        if version is not None and version != self._served.version:
            raise errors.NotFound(
                404, "NotFound", f"version: must be {self._served.version!r}, got {version!r}"
            )

    def _ready(self, document: Mapping[str, object]) -> Reply:
        """Return the answer that the server or the model is ready; KServe's client reads the document."""
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

    def _metadata(self) -> dict[str, Any]:
        return {
            "name": self._served.name,
            "versions": [self._served.version],
            "platform": self._served.platform,
            "inputs": [_tensor_metadata(tensor) for tensor in self._model.inputs],
            "outputs": [_tensor_metadata(output) for output in self._model.outputs],
        }

    async def _infer(self, headers: Headers, body: bytes, receive: Receive) -> Reply:
        request = protocol.decode(body, headers.get(protocol.HEADER_LENGTH))
        outputs = await self._predictions.infer(request, receive)
        encoded, length = protocol.encode(
            outputs, model=self._served.name, version=self._served.version, id_=request.id
        )
        if length is None:
            return Reply(200, encoded)
        name = protocol.HEADER_LENGTH.encode()
        return Reply(200, encoded, "application/octet-stream", ((name, str(length).encode()),))

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limit = self._settings.max_body_bytes
        if int(headers.get("content-length", "0")) > limit:
            raise _too_large(f"must be at most {limit} bytes", int(headers["content-length"]))
        chunks: list[bytes] = []
        size = 0
        has_more = True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise errors.ApiError(400, "BadRequest", "body: the client disconnected before its end")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                raise _too_large(f"must be at most {limit} bytes", f"{size} or more")
            has_more = message.get("more_body", False)
        return _decompressed(b"".join(chunks), headers.get("content-encoding", "identity"), limit)

    async def _send(self, reply: Reply, headers: Headers, send: Send) -> None:
        body = reply.body
        response_headers = [(b"content-type", reply.content_type.encode()), *reply.headers]
        encoding = _accepted(headers.get("accept-encoding", ""))
        if encoding and len(body) >= self._settings.compress_from_bytes:
            compressor = zlib.compressobj(level=1, wbits=_WBITS[encoding])
            body = compressor.compress(body) + compressor.flush()
            response_headers.append((b"content-encoding", encoding.encode()))
        response_headers.append((b"content-length", str(len(body)).encode()))
        # uvicorn drops the rest of a body that is too large. A close would reset the connection of a client
        # that still sends, before it reads the answer; one that waits for `100 Continue` sends no body.
        refused_unsent = reply.status == _TOO_LARGE and "expect" in headers
        if refused_unsent or self._served.draining:
            response_headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": response_headers})
        await send({"type": "http.response.body", "body": body})


def _too_large(rule: str, value: object) -> errors.ApiError:
    """Return the error of status 413 for a body above the bound."""
    refused = bad("body", rule, value)
    return errors.ApiError(_TOO_LARGE, "RequestEntityTooLarge", refused.message, refused.causes)


def _tensor_metadata(tensor: Input | Output) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _json(document: Any) -> Reply:
    return Reply(200, orjson.dumps(document))


def _allow(method: str, allowed: str) -> None:
    if method != allowed:
        raise errors.ApiError(405, "MethodNotAllowed", f"method: must be {allowed}, got {method}")


def _accepted(header: str) -> str | None:
    """Return the first supported encoding of an Accept-Encoding header; None where there is none."""
    for part in header.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        if name in _WBITS and parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            return name
    return None


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return body
    if encoding not in _WBITS:
        raise bad("Content-Encoding", "must be gzip, deflate or identity", encoding)
    decompressor = zlib.decompressobj(wbits=_WBITS[encoding])
    try:
        data = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise bad("body", f"must be {encoding}", str(error)) from error
    if len(data) > limit:
        raise _too_large(f"must be at most {limit} bytes when decompressed", f"more than {limit}")
    if not decompressor.eof or decompressor.unused_data:
        raise bad("body", f"must be one complete {encoding} stream", f"{len(body)} bytes")
    return data
