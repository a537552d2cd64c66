"""The methods of `inference.GRPCInferenceService` for one model.

https://github.com/open-inference/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from serving import errors
from serving.runtimes.batching.predictions import Predictions
from serving.runtimes.grpc import codec, frames
from serving.runtimes.grpc import messages_pb2 as messages
from serving.runtimes.large_requests import LargeRequests, Prepared, many_values
from serving.runtimes.model import LoadedModel
from serving.runtimes.open_inference import decoding_memory
from serving.runtimes.open_inference.protocol import InferenceRequest
from serving.runtimes.open_inference.tensors import bad_request
from serving.runtimes.request_body import Receive
from serving.runtimes.served_model import PROTOCOL_VERSION, ServedModel
from serving.settings import RuntimeSettings

_SERVICE = "/inference.GRPCInferenceService/"
_INFER = f"{_SERVICE}ModelInfer"

Request = TypeVar("Request", bound=Message)
Method = Callable[[bytes, Receive], Awaitable[bytes]]
"""Returns the encoded response to an encoded request, without frames."""
BodyMethod = Callable[[bytes, str, Receive], Awaitable[bytes]]
"""Returns the body of the response to the body of a request: the body, the value of `grpc-encoding`, and
`receive` as in `Predictions.infer`."""


class InferenceService:
    """One model behind the service's methods."""

    def __init__(
        self,
        model: LoadedModel,
        served: ServedModel,
        settings: RuntimeSettings,
        predictions: Predictions,
        large: LargeRequests,
    ) -> None:
        self._model = model
        self._served = served
        self._settings = settings
        self._predictions = predictions
        self._small_bytes = min(decoding_memory.SMALL_BYTES, settings.max_body_bytes)
        self._large = large
        self._methods: Mapping[str, Method] = {
            f"{_SERVICE}ServerLive": self._server_live,
            f"{_SERVICE}ServerReady": self._server_ready,
            f"{_SERVICE}ServerMetadata": self._server_metadata,
            f"{_SERVICE}ModelReady": self._model_ready,
            f"{_SERVICE}ModelMetadata": self._model_metadata,
        }

    def method(self, path: str) -> BodyMethod:
        """Return the method of a request's path.

        A call of the method raises errors.ApiError (400, a field breaks a rule; 404, another model; 413, the
        message is too large) and errors.Temporary (too many requests wait).

        Raises:
            errors.ApiError: 405, there is no such method.
        """
        if path == _INFER:
            return self._model_infer
        method = self._methods.get(path)
        if method is None:
            known = ", ".join((*self._methods, _INFER))
            raise errors.ApiError(405, "MethodNotAllowed", f"method: must be one of {known}, got {path!r}")
        return partial(self._answer, method)

    async def _answer(self, method: Method, body: bytes, encoding: str, receive: Receive) -> bytes:
        # Every request but ModelInfer's has a name and a version at most, so a larger one is refused.
        message = frames.message_of(body, encoding, self._small_bytes)
        return frames.framed(await method(message, receive))

    async def _server_live(self, message: bytes, _receive: Receive) -> bytes:
        _parsed(messages.ServerLiveRequest, message)
        return _encoded(messages.ServerLiveResponse(live=True))

    async def _server_ready(self, message: bytes, _receive: Receive) -> bytes:
        _parsed(messages.ServerReadyRequest, message)
        return _encoded(messages.ServerReadyResponse(ready=not self._served.draining))

    async def _server_metadata(self, message: bytes, _receive: Receive) -> bytes:
        _parsed(messages.ServerMetadataRequest, message)
        response = messages.ServerMetadataResponse(name=self._served.server_name, version=PROTOCOL_VERSION)
        return _encoded(response)

    async def _model_ready(self, message: bytes, _receive: Receive) -> bytes:
        request = _parsed(messages.ModelReadyRequest, message)
        self._served.check(request.name, request.version or None)
        return _encoded(messages.ModelReadyResponse(ready=not self._served.draining))

    async def _model_metadata(self, message: bytes, _receive: Receive) -> bytes:
        request = _parsed(messages.ModelMetadataRequest, message)
        self._served.check(request.name, request.version or None)
        return _encoded(messages.ModelMetadataResponse(**self._served.metadata(self._model)))

    async def _model_infer(self, body: bytes, encoding: str, receive: Receive) -> bytes:
        message = frames.message_within(body, encoding, self._small_bytes)
        if message is not None:
            return await self._inferred(self._decoded(message), receive)
        prepare = partial(self._prepared, body, encoding)
        async with self._large.decoded(prepare) as request:
            return await self._inferred(request, receive)

    def _prepared(self, body: bytes, encoding: str) -> Prepared:
        """Decompress a large request, and check the memory of its decoding (`LargeRequests.decoded`)."""
        message = frames.message_of(body, encoding, self._settings.max_body_bytes)
        needed = decoding_memory.of_message(message)
        decoding_memory.check(needed, self._large.memory.decoding)
        return Prepared(needed, partial(self._decoded, message))

    def _decoded(self, message: bytes) -> InferenceRequest:
        request = _parsed(messages.ModelInferRequest, message)
        self._served.check(request.model_name, request.model_version or None)
        return codec.decode(request)

    async def _inferred(self, request: InferenceRequest, receive: Receive) -> bytes:
        """Return the body of the response to a decoded request."""
        outputs = await self._predictions.infer(request, receive)
        encode = partial(
            codec.encode, outputs, model=self._served.name, version=self._served.version, id_=request.id
        )
        return frames.framed(await self._large.run(encode) if many_values(outputs) else encode())


def _parsed(kind: type[Request], message: bytes) -> Request:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise bad_request("message", f"must be a {kind.DESCRIPTOR.name}", f"{len(message)} bytes") from error


def _encoded(message: Message) -> bytes:
    return bytes(message.SerializeToString())
