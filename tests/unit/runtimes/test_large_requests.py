"""Large requests are decoded and encoded beside the event loop, in order and within their memory."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import orjson
import pytest
from tritonclient.grpc import service_pb2 as triton

from serving.runtimes.batching.predictions import SinglePredictions
from serving.runtimes.grpc import codec, frames
from serving.runtimes.large_requests import LargeRequests, Prepared
from serving.runtimes.open_inference import protocol
from serving.runtimes.open_inference.app import InferenceApp
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.startup import StartupReport
from serving.settings import RuntimeSettings
from tests.objects.models.column_models import ColumnModel

SETTINGS = RuntimeSettings()
MIB = 1 << 20
LONGEST = 10.0
"""Seconds for which a decoder waits in vain, so that a test of a blocked event loop ends."""
COUNT = 40_000


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "codec") as executor:
        yield executor


@pytest.fixture
def app(worker: ThreadPoolExecutor) -> InferenceApp:
    return application(worker, RequestMemory(64 * MIB, 64 * MIB))


def application(worker: ThreadPoolExecutor, memory: RequestMemory) -> InferenceApp:
    model: Any = ColumnModel()
    served = ServedModel("tests", "m", "v1", StartupReport(0.0))
    predictions = SinglePredictions(model, SETTINGS, worker)
    return InferenceApp(model, served, SETTINGS, predictions, LargeRequests(memory, worker))


async def ask(app: InferenceApp, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    method = "POST" if body else "GET"
    await app({"type": "http", "method": method, "path": path, "headers": encoded}, receive, send)
    return sent[0]["status"], sent[1]["body"]


def large(count: int = COUNT) -> bytes:
    item = {"name": "x", "datatype": "FP64", "shape": [count], "data": [1.5] * count}
    return orjson.dumps({"inputs": [item]})


def large_message() -> bytes:
    request = triton.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype="FP64", shape=[COUNT]).contents.fp64_contents.extend([1.5] * COUNT)
    return frames.framed(request.SerializeToString())


@pytest.mark.parametrize("form", ["json", "grpc"])
@pytest.mark.parametrize("stage", ["decode", "encode"])
async def test_liveness_is_answered_while_a_large_request_is_decoded_or_encoded(
    app: InferenceApp, form: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = protocol if form == "json" else codec
    original, began, may_end = getattr(module, stage), threading.Event(), threading.Event()

    def slow(*arguments: Any, **named: Any) -> Any:
        began.set()
        assert may_end.wait(LONGEST), "the event loop is blocked"
        return original(*arguments, **named)

    monkeypatch.setattr(module, stage, slow)
    if form == "json":
        answer = asyncio.create_task(ask(app, "/v2/models/m/infer", large()))
    else:
        path = "/inference.GRPCInferenceService/ModelInfer"
        answer = asyncio.create_task(ask(app, path, large_message(), content_type="application/grpc"))
    while not began.is_set():
        await asyncio.sleep(0.001)
    assert await ask(app, "/v2/health/live") == (200, b'{"live":true}')
    may_end.set()
    status, body = await answer
    assert status == 200
    if form == "json":
        assert orjson.loads(body)["outputs"][0]["data"] == [3.0] * COUNT
    else:
        message = triton.ModelInferResponse.FromString(frames.message_of(body, "", MIB))
        assert list(message.outputs[0].contents.fp64_contents) == [3.0] * COUNT


async def test_a_large_answer_is_compressed_beside_the_event_loop(
    app: InferenceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()

    def compressed(body: bytes, _: str) -> bytes:
        threads.add(threading.current_thread().name)
        return body

    monkeypatch.setattr("serving.runtimes.open_inference.compression.compressed", compressed)
    await ask(app, "/v2/models/m/infer", large(), accept_encoding="gzip")
    assert threads == {"codec_0"}


def prepared(log: list[int], number: int, memory: int, values: int) -> Prepared:
    def decode() -> InferenceRequest:
        log.append(number)
        return InferenceRequest("", (Tensor("x", "FP64", np.zeros(values)),), None, binary=False)

    return Prepared(memory, decode)


async def test_requests_are_decoded_in_order_once_earlier_ones_leave_room(worker: ThreadPoolExecutor) -> None:
    requests = LargeRequests(RequestMemory(1000, 1000), worker)
    log: list[int] = []
    may_leave = [asyncio.Event() for _ in range(3)]
    decoded = [asyncio.Event() for _ in range(3)]

    async def answer(number: int, memory: int, values: int) -> None:
        async with requests.decoded(partial(prepared, log, number, memory, values)):
            decoded[number].set()
            await may_leave[number].wait()

    # The first keeps 400 bytes. The second does not fit beside it, and the third would, but is not its turn.
    needs = [(1000, 50), (700, 10), (100, 1)]
    tasks = [asyncio.create_task(answer(i, *need)) for i, need in enumerate(needs)]
    await decoded[0].wait()
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert log == [0]
    may_leave[0].set()
    await asyncio.gather(decoded[1].wait(), decoded[2].wait())
    assert log == [0, 1, 2]
    for event in may_leave:
        event.set()
    await asyncio.gather(*tasks)


async def test_a_request_that_fails_leaves_its_room(worker: ThreadPoolExecutor) -> None:
    requests = LargeRequests(RequestMemory(1000, 1000), worker)
    for number in range(3):
        with pytest.raises(ZeroDivisionError):
            async with requests.decoded(partial(prepared, [], number, 900, 100)):
                raise ZeroDivisionError


async def test_bodies_beyond_the_memory_for_them_get_503_and_small_ones_are_answered(
    worker: ThreadPoolExecutor,
) -> None:
    app = application(worker, RequestMemory(64 * MIB, 300_000))
    held = asyncio.Event()
    half = asyncio.Event()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if half.is_set():
            await held.wait()
            return {"type": "http.disconnect"}
        half.set()
        return {"type": "http.request", "body": bytes(200_000), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/v2/models/m/infer"
    slow = asyncio.create_task(
        app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    )
    await half.wait()
    await asyncio.sleep(0)
    body = large()
    assert 100_000 < len(body) < 300_000
    status, answer = await ask(app, path, body)
    assert (status, orjson.loads(answer)) == (
        503,
        {"error": "large requests already fill the memory for them"},
    )
    assert (await ask(app, path, large(10)))[0] == 200
    held.set()
    await slow
    assert sent[0]["status"] == 400
    assert (await ask(app, path, body))[0] == 200
