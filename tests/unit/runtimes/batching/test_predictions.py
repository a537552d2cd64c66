"""Requests that wait for a model, and their answers; the model counts its calls."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pytest
from sklearn.linear_model import LinearRegression

from serving import errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes.batching.batch_queue import BatchQueue
from serving.runtimes.batching.batches import Outputs
from serving.runtimes.batching.predictions import BatchedPredictions, Predictions, SinglePredictions
from serving.runtimes.large_requests import LargeRequests
from serving.runtimes.model import LoadedModel, ModelOutput
from serving.runtimes.open_inference.app import InferenceApp
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.sklearn.estimator import Estimator
from serving.runtimes.startup import StartupReport
from serving.settings import RuntimeSettings

SETTINGS = RuntimeSettings()
LARGE = LargeRequests(RequestMemory(1 << 20, 1 << 20), ThreadPoolExecutor(1))
PATIENT = 1000.0
"""Seconds that no test waits."""
REFUSED, BROKEN, STOPPED = -1.0, -2.0, -3.0


@dataclass
class Doubling:
    """Doubles its input; refuses one value, fails at another, and accepts at most `most` rows."""

    seconds: float = 0.0
    most: int = 1000
    calls: list[list[float]] = field(default_factory=list)
    may_go_on: threading.Event = field(default_factory=threading.Event)
    inputs = (Input("x", "FP64", (-1, 1)),)
    outputs = (ModelOutput("y", "FP64", (-1, 1)),)

    def expected_seconds(self, request: InferenceRequest) -> float:
        return self.seconds

    def infer(self, request: InferenceRequest) -> Outputs:
        rows = request.inputs[0].array
        self.calls.append(rows.ravel().tolist())
        if self.seconds:
            assert self.may_go_on.wait(20)
        if REFUSED in rows:
            raise errors.ApiError(400, "BadRequest", "refused")
        if BROKEN in rows or len(rows) > self.most:
            raise RuntimeError("broken")
        if STOPPED in rows:
            raise StopIteration("stopped")
        return [(Tensor("y", "FP64", 2 * rows), False)]


def ask(*values: float) -> InferenceRequest:
    return InferenceRequest(
        "", (Tensor("x", "FP64", np.array([[value] for value in values])),), None, binary=False
    )


async def stays() -> dict[str, Any]:
    """Receive nothing: this client waits for its answer."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., BatchedPredictions]]:
    with ThreadPoolExecutor(1) as worker:

        def gathered(
            model: LoadedModel, size: int = 32, patience: float = 0.0, room: int = 1000
        ) -> BatchedPredictions:
            return BatchedPredictions(model, SETTINGS, worker, BatchQueue(size, patience, room))

        yield gathered


Make = Callable[..., BatchedPredictions]


async def answers(predictions: Predictions, *requests: InferenceRequest) -> list[list[float] | Exception]:
    tasks = (predictions.infer(request, stays) for request in requests)
    async with asyncio.timeout(20):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    return [
        result if isinstance(result, Exception) else result[0][0].array.ravel().tolist() for result in results
    ]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


async def waits(gathered: BatchedPredictions, requests: int) -> None:
    await until(lambda: len(gathered._queue) == requests)


async def test_requests_read_together_are_one_prediction(
    make: Make,
) -> None:
    model = Doubling()
    assert await answers(make(model), ask(1), ask(2, 3), ask(4)) == [[2], [4, 6], [8]]
    assert model.calls == [[1, 2, 3, 4]]


async def test_a_single_request_is_predicted_at_once(make: Make) -> None:
    model = Doubling()
    gathered = make(model)
    assert await answers(gathered, ask(1)) == [[2]]
    assert await answers(gathered, ask(2)) == [[4]]
    assert model.calls == [[1], [2]]


async def test_requests_that_arrive_during_a_prediction_are_the_next_batch(make: Make) -> None:
    model = Doubling(seconds=1.0)
    gathered = make(model, size=3)
    first = asyncio.create_task(answers(gathered, ask(1)))
    await until(lambda: model.calls == [[1]])
    later = [asyncio.create_task(answers(gathered, ask(value))) for value in (2, 3, 4, 5)]
    await waits(gathered, 4)
    model.may_go_on.set()
    assert await first == [[2]]
    assert [await task for task in later] == [[[4]], [[6]], [[8]], [[10]]]
    assert model.calls == [[1], [2, 3, 4], [5]]


async def test_a_request_with_more_rows_than_a_batch_is_predicted_alone(make: Make) -> None:
    model = Doubling()
    assert await answers(make(model, size=2), ask(1), ask(2, 3, 4), ask(5)) == [[2], [4, 6, 8], [10]]
    assert model.calls == [[1], [2, 3, 4], [5]]


async def test_an_idle_replica_waits_for_others_until_the_timeout(make: Make) -> None:
    model = Doubling()
    gathered = make(model, size=2, patience=PATIENT)
    first = asyncio.create_task(answers(gathered, ask(1)))
    await waits(gathered, 1)
    assert (model.calls, first.done()) == ([], False)
    assert await answers(gathered, ask(2)) == [[4]]
    assert await first == [[2]]
    assert await answers(make(model, size=2, patience=0.001), ask(3)) == [[6]]
    assert model.calls == [[1, 2], [3]]


async def test_an_invalid_request_is_refused_without_waiting(make: Make) -> None:
    model = Doubling()
    wrong = InferenceRequest("", (Tensor("x", "FP64", np.zeros((1, 2))),), None, binary=False)
    (error,) = await answers(make(model, patience=PATIENT), wrong)
    assert isinstance(error, errors.ApiError)
    assert "inputs[0].shape" in str(error)
    assert model.calls == []


@pytest.mark.parametrize(
    ("value", "error"), [(REFUSED, errors.ApiError), (BROKEN, RuntimeError), (STOPPED, RuntimeError)]
)
@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_failing_request_does_not_fail_its_batch(
    make: Make, value: float, error: type[Exception], seconds: float
) -> None:
    model = Doubling(seconds)
    model.may_go_on.set()
    gathered = make(model)
    results = await answers(gathered, ask(1), ask(value), ask(3))
    assert (results[0], results[2]) == ([2], [6])
    assert isinstance(results[1], error)
    assert model.calls == [[1, value, 3], [1], [value], [3]]
    await answers(gathered, ask(1), ask(2), ask(3))
    assert model.calls[-1] == [1, 2, 3]


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_single_request_fails_when_the_model_raises_stop_iteration(seconds: float) -> None:
    model = Doubling(seconds)
    model.may_go_on.set()
    with ThreadPoolExecutor(1) as worker:
        single = SinglePredictions(model, SETTINGS, worker)
        stopped, doubled = await answers(single, ask(STOPPED), ask(1))
    assert isinstance(stopped, RuntimeError)
    assert doubled == [2]


async def test_a_single_request_is_refused_when_too_many_wait() -> None:
    model = Doubling(seconds=1.0)
    with ThreadPoolExecutor(1) as worker:
        single = SinglePredictions(model, replace(SETTINGS, waiting=2), worker)
        held = [asyncio.create_task(answers(single, ask(value))) for value in (1, 2, 3)]
        await until(lambda: single._unanswered == 3)
        with pytest.raises(errors.Temporary, match="2 requests already wait") as raised:
            await single.infer(ask(4), stays)
        assert raised.value.retry_after == SETTINGS.retry_after_seconds
        model.may_go_on.set()
        assert [await task for task in held] == [[[2]], [[4]], [[6]]]
        assert await answers(single, ask(5)) == [[10]]
    assert model.calls == [[1], [2], [3], [5]]


@pytest.mark.parametrize("ending", ["disconnected", "cancelled"])
async def test_a_single_request_is_not_predicted_when_its_client_has_left(ending: str) -> None:
    model = Doubling(seconds=1.0)
    disconnect = asyncio.Event()

    async def leaves() -> dict[str, Any]:
        await disconnect.wait()
        return {"type": "http.disconnect"}

    with ThreadPoolExecutor(1) as worker:
        single = SinglePredictions(model, SETTINGS, worker)
        first = asyncio.create_task(answers(single, ask(1)))
        await until(lambda: model.calls == [[1]])
        leaving = asyncio.create_task(single.infer(ask(2), leaves))
        await until(lambda: single._unanswered == 2)
        if ending == "disconnected":
            disconnect.set()
            with pytest.raises(errors.ApiError, match="the client disconnected"):
                await leaving
        else:
            leaving.cancel()
            await asyncio.wait([leaving])
        model.may_go_on.set()
        assert await first == [[2]]
        assert await answers(single, ask(3)) == [[6]]
    assert model.calls == [[1], [3]]


async def test_refused_values_fail_only_their_own_request(make: Make) -> None:
    model = Estimator(LinearRegression().fit([[0.0], [1.0]], [0.0, 10.0]), OutputManifest())

    def row(value: float) -> InferenceRequest:
        return InferenceRequest("", (Tensor("input", "FP64", np.array([[value]])),), None, binary=False)

    first, second, third = await answers(make(model), row(2), row(np.nan), row(4))
    assert [first, third] == [[pytest.approx(20)], [pytest.approx(40)]]
    assert isinstance(second, errors.ApiError)
    assert "the model refuses it: Input X contains NaN" in str(second)


async def test_batches_get_smaller_when_requests_fail_only_together(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    model = Doubling(most=3)
    gathered = make(model)
    eight = [ask(value) for value in range(8)]
    assert await answers(gathered, *eight) == [[2 * value] for value in range(8)]
    assert "8 rows of 8 requests fail together and not alone; batches have at most 4 rows now" in caplog.text
    model.calls.clear()
    await answers(gathered, *eight)
    assert [len(call) for call in model.calls] == [4, 1, 1, 1, 1, 2, 2]


async def test_a_request_is_not_predicted_when_its_client_has_disconnected(make: Make) -> None:
    model = Doubling()
    gathered = make(model, size=2, patience=PATIENT)
    disconnect = asyncio.Event()

    async def leaves() -> dict[str, Any]:
        await disconnect.wait()
        return {"type": "http.disconnect"}

    task = asyncio.create_task(gathered.infer(ask(1), leaves))
    await waits(gathered, 1)
    disconnect.set()
    with pytest.raises(errors.ApiError, match="the client disconnected"):
        await task
    assert await answers(gathered, ask(2), ask(3)) == [[4], [6]]
    assert model.calls == [[2, 3]]


async def test_a_request_is_not_predicted_when_it_was_cancelled(make: Make) -> None:
    model = Doubling()
    gathered = make(model, size=2, patience=PATIENT)
    task = asyncio.create_task(gathered.infer(ask(1), stays))
    await waits(gathered, 1)
    task.cancel()
    await asyncio.wait([task])
    assert await answers(gathered, ask(2), ask(3)) == [[4], [6]]
    assert model.calls == [[2, 3]]


async def test_waiting_requests_are_answered_when_the_process_stops(make: Make) -> None:
    model = Doubling()
    gathered = make(model, patience=PATIENT)
    waiting = asyncio.create_task(answers(gathered, ask(1), ask(2)))
    await waits(gathered, 2)
    gathered.hurry()
    assert await waiting == [[2], [4]]
    assert await answers(gathered, ask(3)) == [[6]]
    assert model.calls == [[1, 2], [3]]


async def test_a_request_is_refused_with_retry_after_when_the_queue_is_full(make: Make) -> None:
    model = Doubling()
    gathered = make(model, patience=PATIENT, room=1)
    app = InferenceApp(model, ServedModel("tests", "m", "v", StartupReport(0.0)), SETTINGS, gathered, LARGE)
    waiting = asyncio.create_task(answers(gathered, ask(1)))
    await waits(gathered, 1)
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        tensor = {"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [2]}
        return {"type": "http.request", "body": orjson.dumps({"inputs": [tensor]})}

    async def send(message: Any) -> None:
        messages.append(message)

    await app({"type": "http", "method": "POST", "path": "/v2/models/m/infer", "headers": []}, receive, send)
    assert messages[0]["status"] == 503
    assert dict(messages[0]["headers"])[b"retry-after"] == b"1"
    assert b"1 requests already wait" in messages[1]["body"]
    app.drain()
    assert await waiting == [[2]]
