"""The inference service behind the ASGI application: frames, statuses and lazy imports."""

import asyncio
import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as triton

from serving.runtimes.batching.predictions import SinglePredictions
from serving.runtimes.large_requests import LargeRequests
from serving.runtimes.open_inference.app import InferenceApp
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.startup import StartupReport
from serving.settings import RuntimeSettings
from tests.objects.models.column_models import ColumnModel

PREFIX = "/inference.GRPCInferenceService/"
SETTINGS = RuntimeSettings(max_body_bytes=10_000)
LARGE = LargeRequests(RequestMemory(1 << 20, 1 << 20), ThreadPoolExecutor(1))


@pytest.fixture
def app() -> InferenceApp:
    model: Any = ColumnModel()
    served = ServedModel("tests", "m", "v1", StartupReport(0.0))
    return InferenceApp(
        model, served, SETTINGS, SinglePredictions(model, SETTINGS, ThreadPoolExecutor(1)), LARGE
    )


async def send(
    app: InferenceApp, method: str, body: bytes, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def keep(message: Any) -> None:
        messages.append(message)

    every = {"content-type": "application/grpc", "accept-encoding": "gzip", **headers}
    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in every.items()]
    scope = {"type": "http", "method": "POST", "path": method, "headers": encoded}
    await app(scope, receive, keep)
    response_headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], response_headers, messages[1]["body"]


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(message)) + message


def infer_request(*values: float, model: str = "m") -> bytes:
    request = triton.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP64", shape=[len(values)])
    tensor.contents.fp64_contents.extend(values)
    return bytes(request.SerializeToString())


def status_of(headers: dict[str, str]) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == int(headers["grpc-status"]))


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", None)]
)
async def test_model_infers_from_a_message_in_every_compression(
    app: InferenceApp, encoding: str, compress: Callable[[bytes], bytes] | None
) -> None:
    message = infer_request(1, 2)
    body = framed(compress(message), compressed=True) if compress else framed(message)
    status, headers, body = await send(app, f"{PREFIX}ModelInfer", body, grpc_encoding=encoding)
    assert (status, headers["content-type"]) == (200, "application/grpc")
    assert headers.keys().isdisjoint({"grpc-status", "content-encoding"}), "the bridge adds the status"
    assert body == framed(body[5:])
    response = triton.ModelInferResponse.FromString(body[5:])
    assert list(response.outputs[0].contents.fp64_contents) == [2, 4]
    assert (response.model_name, response.model_version) == ("m", "v1")


@pytest.mark.parametrize(
    ("method", "body", "http_status", "status", "message"),
    [
        (
            f"{PREFIX}ModelStreamInfer",
            framed(b""),
            405,
            "UNIMPLEMENTED",
            "method: must be one of /inference.",
        ),
        (
            f"{PREFIX}ModelInfer",
            framed(infer_request(1, model="x")),
            404,
            "NOT_FOUND",
            "model: must be 'm', got",
        ),
        (f"{PREFIX}ModelInfer", framed(b"\xff"), 400, "INVALID_ARGUMENT", "message: must be a ModelInferReq"),
        (f"{PREFIX}ModelInfer", framed(infer_request(13)), 500, "INTERNAL", "the model failed; see its log"),
        (
            f"{PREFIX}ModelInfer",
            b"\0\0",
            400,
            "INVALID_ARGUMENT",
            "body: must be one gRPC message of 5 bytes",
        ),
        (
            f"{PREFIX}ModelInfer",
            framed(b"") + b"x",
            400,
            "INVALID_ARGUMENT",
            "body: must be one gRPC message",
        ),
        (
            f"{PREFIX}ModelInfer",
            bytes(10_001),
            413,
            "RESOURCE_EXHAUSTED",
            "body: must be at most 10000 bytes",
        ),
        (
            f"{PREFIX}ModelInfer",
            framed(b"x", compressed=True),
            400,
            "INVALID_ARGUMENT",
            "grpc-encoding: must be gzip, deflate or identity, got 'snappy'",
        ),
    ],
)
async def test_failed_call_has_status_and_message_in_its_headers_and_no_body(
    app: InferenceApp, method: str, body: bytes, http_status: int, status: str, message: str
) -> None:
    code, headers, response = await send(app, method, body, grpc_encoding="snappy")
    assert (code, status_of(headers), response) == (http_status, status, b"")
    assert headers["content-type"] == "application/grpc"
    assert unquote(headers["grpc-message"]).startswith(message)


async def test_draining_server_is_live_and_not_ready(app: InferenceApp) -> None:
    app.drain()
    calls = {
        "ServerLive": triton.ServerLiveResponse(live=True),
        "ServerReady": triton.ServerReadyResponse(ready=False),
    }
    for method, response in calls.items():
        _, _, body = await send(app, f"{PREFIX}{method}", framed(b""))
        assert body[5:] == response.SerializeToString()


@given(st.binary(max_size=60))
def test_no_bytes_of_a_message_fail_otherwise_than_by_an_invalid_argument(message: bytes) -> None:
    model: Any = ColumnModel()
    served = ServedModel("tests", "", "v1", StartupReport(0.0))
    app = InferenceApp(
        model, served, SETTINGS, SinglePredictions(model, SETTINGS, ThreadPoolExecutor(1)), LARGE
    )
    code, _, _ = asyncio.run(send(app, f"{PREFIX}ModelInfer", framed(message)))
    assert code in (400, 404)


def test_a_runtime_imports_protobuf_with_its_first_grpc_request() -> None:
    script = "import sys; import serving.runtimes.open_inference.app; print(*sys.modules)"
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = set(completed.stdout.split())
    assert b"serving.runtimes.open_inference.app" in loaded
    assert loaded.isdisjoint({b"google.protobuf", b"grpc", b"serving.runtimes.grpc.service"})
