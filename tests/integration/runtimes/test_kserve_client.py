"""What KServe's InferenceRESTClient sends, and what it reads of the answers.

Its package is too large to be pinned here. The requests are those of
`python/kserve/kserve/inference_client.py` and `protocol/infer_type.py` of kserve 0.21 for the protocol `v2`,
made with the same HTTP library: `httpx.URL.join` of a base URL and a path, `response.json().get("live")`, and
a body whose JSON has `id` and `model_name`.
"""

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.training import digits
from tests.rig.servers import runtime_process
from tests.rig.servers.runtime_process import Running, wait_ready


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp("kserve")
    digits.write(*digits.train("logistic", seed=1), base / "out")
    store = ModelStore(base / "store")
    built = build_image(base / "out", store, repository="slipway.local/default/digits", lineage={})
    models: Path = store.tree(built.digest) / "models"
    running = runtime_process.start(
        ["-m", "serving.runtimes.sklearn.server"], built.digest, models, base / "log"
    )
    wait_ready(running)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, verify=False) as client:
        yield client


def url(server: Running, path: str) -> httpx.URL:
    base = httpx.URL(f"http://{server.address}")
    return base.join(f"{base.path}{path}")


async def test_health_is_read_from_json(server: Running, client: httpx.AsyncClient) -> None:
    live = await client.get(url(server, "v2/health/live"))
    assert (live.is_success, live.json().get("live")) == (True, True)
    ready = await client.get(url(server, "v2/health/ready"))
    assert (ready.is_success, ready.json().get("ready")) == (True, True)
    model = await client.get(url(server, "v2/models/digits/ready"))
    assert (model.is_success, model.json()) == (True, {"name": "digits", "ready": True})
    unknown = await client.get(url(server, "v2/models/other/ready"))
    assert not unknown.is_success


async def test_inference_in_json_and_binary_is_predicted(server: Running, client: httpx.AsyncClient) -> None:
    images, labels = digits.held_out()
    shape = list(images.shape)
    head = {"id": str(uuid.uuid4()), "model_name": "digits"}
    plain = {"name": "input", "shape": shape, "datatype": "FP64", "data": images.ravel().tolist()}
    infer = url(server, "v2/models/digits/infer")
    answered = await client.post(infer, content=json.dumps({**head, "inputs": [plain]}))
    outputs = {output["name"]: output for output in answered.json()["outputs"]}
    assert np.mean(np.array(outputs["predict"]["data"]) == labels) > 0.9
    assert answered.json()["id"] == head["id"]

    raw = images.astype("<f8").tobytes()
    tensor = {
        "name": "input",
        "shape": shape,
        "datatype": "FP64",
        "parameters": {"binary_data_size": len(raw)},
    }
    parameters = {"binary_data_output": True}
    document = json.dumps({**head, "inputs": [tensor], "parameters": parameters}).encode()
    headers = {
        "inference-header-content-length": str(len(document)),
        "content-type": "application/octet-stream",
    }
    binary = await client.post(infer, content=document + raw, headers=headers)
    length = int(binary.headers["inference-header-content-length"])
    described = {output["name"]: output for output in json.loads(binary.content[:length])["outputs"]}
    offset = length
    for name, output in described.items():
        size = output["parameters"]["binary_data_size"]
        if name == "predict":
            predicted = np.frombuffer(binary.content[offset : offset + size], "<i8")
        offset += size
    assert predicted.tolist() == outputs["predict"]["data"]


async def test_an_error_has_the_text_that_the_client_shows(
    server: Running, client: httpx.AsyncClient
) -> None:
    refused = await client.post(url(server, "v2/models/digits/infer"), content=b"{}")
    assert not refused.is_success
    assert refused.headers["content-type"] == "application/json"
    assert "inputs" in refused.json()["error"]
