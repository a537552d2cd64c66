"""Batching in both runtimes, as processes: the calls of the model, and the answer of each request."""

import asyncio
import http.client
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import joblib
import numpy as np
import orjson
import pytest

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.training import digits
from tests.programs import counting_estimator
from tests.programs.counting_estimator import CountingEstimator, row
from tests.rig.servers import runtime_process
from tests.rig.servers.runtime_process import DEADLINE, Running, wait_ready

SKLEARN, PYTORCH = "serving.runtimes.sklearn.server", "serving.runtimes.torch.server"
URL = "/v2/models/digits/infer"
CLIENTS, EACH = 32, 4
PATIENT = "1000s"
"""Longer than any test takes: only full batches are predicted."""

Start = Callable[..., Running]
Counting = Callable[[int], tuple[Running, Path]]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Start a runtime with the model in `base / out`; it is killed in the end."""
    started: list[Running] = []

    def begin(base: Path, module: str, **environment: str) -> Running:
        store = ModelStore(base / "store")
        digest = build_image(base / "out", store, repository="r", lineage={}).digest
        models = store.tree(digest) / "models"
        started.append(runtime_process.start(["-m", module], digest, models, base / "log", **environment))
        return started[-1]

    yield begin
    for server in started:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory, start: Start) -> Counting:
    """Return a model of a batch size that writes each call to a file; earlier calls are left out.

    The tests of a size share it, until one of them ends it.
    """
    servers: dict[int, tuple[Running, Path]] = {}

    def lend(size: int) -> tuple[Running, Path]:
        if size not in servers or servers[size][0].process.poll() is not None:
            base = tmp_path_factory.mktemp("counting")
            (base / "out").mkdir()
            joblib.dump(CountingEstimator(str(base / "calls")), base / "out" / "model.joblib")
            server = start(base, SKLEARN, SLIPWAY_BATCH_SIZE=str(size), SLIPWAY_BATCH_TIMEOUT=PATIENT)
            wait_ready(server)
            servers[size] = server, base / "calls"
        servers[size][1].write_text("")
        return servers[size]

    return lend


def answered(server: Running, *documents: Any) -> list[httpx.Response]:
    """Send all requests at once."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            base_url=f"http://{server.address}", timeout=DEADLINE, verify=False
        ) as client:
            return await asyncio.gather(*(client.post(URL, json=document) for document in documents))

    return asyncio.run(ask())


def value(response: httpx.Response) -> float:
    assert response.status_code == 200, response.text
    return float(response.json()["outputs"][0]["data"][0])


@pytest.mark.parametrize(("size", "expected"), [(1, CLIENTS * EACH), (CLIENTS, EACH)])
async def test_simultaneous_requests_cost_fewer_calls_when_batched(
    counting: Counting, size: int, expected: int
) -> None:
    server, file = counting(size)

    async def keep_asking(client: httpx.AsyncClient, person: int) -> list[float]:
        return [value(await client.post(URL, json=row(100 * person + n))) for n in range(EACH)]

    async with httpx.AsyncClient(
        base_url=f"http://{server.address}", timeout=DEADLINE, verify=False
    ) as client:
        answers = await asyncio.gather(*(keep_asking(client, person) for person in range(CLIENTS)))
    assert answers == [[1000.0 * person + 10 * n for n in range(EACH)] for person in range(CLIENTS)]
    calls = counting_estimator.calls(file)
    assert sorted(number for call in calls for number in call) == sorted(
        100 * person + n for person in range(CLIENTS) for n in range(EACH)
    )
    assert len(calls) == expected


def connected(server: Running, document: Any) -> socket.socket:
    """Send a request and return its connection; the server has read it once it answers a later request."""
    host, port = server.address.split(":")
    body = orjson.dumps(document)
    client = socket.create_connection((host, int(port)), DEADLINE)
    client.sendall(f"POST {URL} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    return client


def passes(server: Running) -> None:
    httpx.get(f"http://{server.address}/v2/health/live", timeout=DEADLINE, verify=False).raise_for_status()


def test_a_request_is_not_predicted_when_its_client_disconnects_first(counting: Counting) -> None:
    server, file = counting(2)
    with connected(server, row(1)):
        passes(server)
    passes(server)
    assert [value(response) for response in answered(server, row(2), row(3))] == [20, 30]
    assert sorted(*counting_estimator.calls(file)) == [2, 3]


def test_sigterm_answers_waiting_requests_and_exits_0(counting: Counting) -> None:
    server, file = counting(CLIENTS)
    clients = [connected(server, row(number)) for number in (1, 2, 3)]
    passes(server)
    assert file.read_text() == ""
    server.process.send_signal(signal.SIGTERM)
    for client, expected in zip(clients, (10, 20, 30), strict=True):
        with http.client.HTTPResponse(client) as response:
            response.begin()
            assert response.status == 200
            assert orjson.loads(response.read())["outputs"][0]["data"] == [expected]
        client.close()
    assert server.process.wait(DEADLINE) == 0
    assert counting_estimator.calls(file) == [[1, 2, 3]]


def trained(directory: Path, framework: str) -> str:
    """Write a small model; return its runtime."""
    if framework == "sklearn":
        digits.write(*digits.train("logistic", seed=1), directory)
        return SKLEARN
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'slipway[torch]')")
    from serving.training import digits_torch

    directory.mkdir()
    digits_torch.write(digits_torch.Classifier(32).eval(), {}, directory)
    return PYTORCH


def image(values: Any) -> dict[str, Any]:
    data = np.asarray(values).ravel().tolist()
    return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [len(data) // 64, 64], "data": data}]}


@pytest.mark.parametrize("framework", ["sklearn", "pytorch"])
def test_answers_of_full_batches_equal_those_of_single_requests(
    framework: str, tmp_path: Path, start: Start
) -> None:
    module = trained(tmp_path / "out", framework)
    server = start(tmp_path, module, SLIPWAY_BATCH_SIZE="8", SLIPWAY_BATCH_TIMEOUT=PATIENT)
    images = digits.held_out()[0][:CLIENTS]
    wait_ready(server)
    together = answered(server, *(image(pixels) for pixels in images))
    wrong = answered(server, image(np.zeros(128)) | {"outputs": [{"name": "nothing"}]})
    assert [response.status_code for response in wrong] == [400]
    (alone,) = answered(server, image(images))
    assert [value(response) for response in together] == alone.json()["outputs"][0]["data"]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(DEADLINE) == 0
    assert "33 requests so far were answered by 5 predictions" in server.log.read_text()
