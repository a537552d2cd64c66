"""The answer to a body that is too large, and when it is sent."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from sklearn.linear_model import LinearRegression

from serving.images.documents.output_manifest import OutputManifest
from serving.runtimes.batching.batch_queue import BatchQueue
from serving.runtimes.batching.predictions import BatchedPredictions
from serving.runtimes.large_requests import LargeRequests
from serving.runtimes.open_inference.app import InferenceApp
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.sklearn.estimator import Estimator
from serving.runtimes.startup import StartupReport
from serving.settings import RuntimeSettings

SETTINGS = replace(RuntimeSettings(), max_body_bytes=10)
LARGE = LargeRequests(RequestMemory(1 << 20, 1 << 20), ThreadPoolExecutor(1))
CHUNKS = 5


@pytest.fixture
def app() -> Iterator[InferenceApp]:
    fitted = LinearRegression().fit(np.zeros((2, 1)), np.zeros(2))
    model = Estimator(fitted, OutputManifest())
    with ThreadPoolExecutor(1) as worker:
        predictions = BatchedPredictions(model, SETTINGS, worker, BatchQueue(1, 0.0, 10))
        yield InferenceApp(
            model, ServedModel("sklearn", "m", "v", StartupReport(0.0)), SETTINGS, predictions, LARGE
        )


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        ([(b"content-length", b"30")], CHUNKS),
        ([(b"transfer-encoding", b"chunked")], CHUNKS),
        ([(b"content-length", b"30"), (b"expect", b"100-continue")], 0),
    ],
    ids=["length", "chunked", "expects 100"],
)
async def test_a_body_that_comes_is_read_to_its_end_before_its_413(
    app: InferenceApp, headers: list[tuple[bytes, bytes]], read: int
) -> None:
    received: list[dict[str, Any]] = []
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        assert not sent, "Envoy resets a client that still sends when the answer comes"
        received.append({"type": "http.request", "body": b"123456", "more_body": len(received) < CHUNKS - 1})
        return received[-1]

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v2/models/m/infer", "headers": headers}
    await app(scope, receive, send)
    start, body = sent
    assert (start["status"], len(received)) == (413, read)
    assert orjson.loads(body["body"])["error"].startswith("body: must be at most 10 bytes, got ")
    assert ((b"connection", b"close") in start["headers"]) == (read == 0)
