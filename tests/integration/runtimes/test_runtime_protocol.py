"""The protocol of both runtimes, as processes: by an unmodified tritonclient and by raw HTTP."""

import gzip
import http.client
import json
import re
from collections.abc import Callable, Iterator

import gevent
import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.training import digits
from tests.rig.servers import runtime_process
from tests.rig.servers.runtime_process import Running, wait_ready

MODULES = {"sklearn": "serving.runtimes.sklearn.server", "pytorch": "serving.runtimes.torch.server"}


@pytest.fixture(scope="module", params=MODULES)
def framework(request: pytest.FixtureRequest) -> str:
    if request.param == "pytorch":
        pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'slipway[torch]')")
    return str(request.param)


@pytest.fixture(scope="module")
def server(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp(framework)
    if framework == "sklearn":
        digits.write(*digits.train("logistic", seed=1), base / "out")
    else:
        from serving.training import digits_torch

        digits_torch.write(*digits_torch.train(hidden=32, epochs=20, seed=1), base / "out")
    store = ModelStore(base / "store")
    built = build_image(base / "out", store, repository="slipway.local/default/digits", lineage={})
    command = ["-m", MODULES[framework]]
    running = runtime_process.start(command, built.digest, store.tree(built.digest) / "models", base / "log")
    wait_ready(running)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture(scope="module", autouse=True)
def _no_hub_left() -> Iterator[None]:
    """End the event loop of gevent, which tritonclient starts."""
    yield
    gevent.get_hub().destroy(destroy_loop=True)


@pytest.fixture
def client(server: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.address) as triton_client:
        yield triton_client


def digits_input(images: np.ndarray, *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput("input", list(images.shape), "FP64")
    tensor.set_data_from_numpy(images, binary_data=binary)
    return tensor


def test_tritonclient_finds_a_live_ready_described_model(
    client: triton.InferenceServerClient, framework: str
) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "digits-v1")
    assert not client.is_model_ready("digits", "digits-v2")
    assert not client.is_model_ready("other")
    assert client.get_model_metadata("digits") == {
        "name": "digits",
        "versions": ["digits-v1"],
        "platform": framework,
        "inputs": [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}],
        "outputs": [
            {"name": "predict", "datatype": "INT64", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP64", "shape": [-1, 10]},
        ],
    }
    (listed,) = client.get_model_repository_index()
    assert (listed["name"], listed["version"], listed["state"]) == ("digits", "digits-v1", "READY")


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_predictions_are_the_models_in_every_encoding(
    client: triton.InferenceServerClient, *, binary_in: bool, binary_out: bool, compression: str | None
) -> None:
    images, labels = digits.held_out()
    outputs = [
        triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("predict", "probabilities")
    ]
    result = client.infer(
        "digits",
        [digits_input(images, binary=binary_in)],
        outputs=outputs,
        request_id="r1",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    predicted, probabilities = result.as_numpy("predict"), result.as_numpy("probabilities")
    assert np.mean(predicted == labels) > 0.9
    assert (probabilities.argmax(axis=1) == predicted).all()
    assert np.allclose(probabilities.sum(axis=1), 1.0)
    answer = result.get_response()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("digits", "digits-v1", "r1")


def test_only_requested_outputs_are_returned(client: triton.InferenceServerClient) -> None:
    images, _ = digits.held_out()
    result = client.infer(
        "digits", [digits_input(images[:2])], outputs=[triton.InferRequestedOutput("predict")]
    )
    assert [output["name"] for output in result.get_response()["outputs"]] == ["predict"]


@pytest.mark.parametrize(
    ("tensor", "datatype", "name", "says"),
    [
        (
            np.zeros((1, 63)),
            "FP64",
            "input",
            "inputs[0].shape: must be [-1, 64], where -1 is 1 or more, got [1, 63]",
        ),
        (np.zeros((0, 64)), "FP64", "input", "inputs[0].shape: must be"),
        (np.zeros((1, 64), np.float32), "FP32", "input", "inputs[0].datatype: must be FP64, got 'FP32'"),
        (np.zeros((1, 64)), "FP64", "pixels", "inputs[0].name: must be 'input', got 'pixels'"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_field_rule_and_value(
    client: triton.InferenceServerClient, tensor: np.ndarray, datatype: str, name: str, says: str
) -> None:
    input_ = triton.InferInput(name, list(tensor.shape), datatype)
    input_.set_data_from_numpy(tensor)
    with pytest.raises(InferenceServerException, match=re.escape(says)) as caught:
        client.infer("digits", [input_])
    assert caught.value.status() == "400"


def test_an_output_that_the_model_does_not_have_is_refused(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=r"outputs\[0\]\.name: must be one of predict, prob"):
        client.infer(
            "digits", [digits_input(np.zeros((1, 64)))], outputs=[triton.InferRequestedOutput("score")]
        )


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get_model_config("digits"),
        lambda client: client.get_inference_statistics("digits"),
        lambda client: client.load_model("digits"),
        lambda client: client.get_system_shared_memory_status(),
        lambda client: client.get_trace_settings(),
    ],
    ids=["config", "statistics", "load", "shared memory", "trace"],
)
def test_path_that_triton_has_beyond_the_protocol_is_a_404(
    client: triton.InferenceServerClient, ask: Callable[[triton.InferenceServerClient], object]
) -> None:
    with pytest.raises(InferenceServerException, match="no such path: /v2/") as caught:
        ask(client)
    assert caught.value.status() == "404"


@pytest.mark.parametrize(
    ("method", "path", "options", "code"),
    [
        ("GET", "/v3", {}, 404),
        ("GET", "/v2/models/other", {}, 404),
        ("POST", "/v2/models/digits/versions/9/infer", {"content": b"{}"}, 404),
        ("GET", "/v2/models/digits/infer", {}, 405),
        ("POST", "/v2/models/digits/infer", {"content": b"{"}, 400),
        ("POST", "/v2/models/digits/infer", {"content": b"x", "headers": {"content-encoding": "gzip"}}, 400),
        ("POST", "/v2/models/digits/infer", {"content": b"x", "headers": {"content-encoding": "br"}}, 400),
        (
            "POST",
            "/v2/models/digits/infer",
            {"content": gzip.compress(b"{}")[:-3], "headers": {"content-encoding": "gzip"}},
            400,
        ),
        (
            "POST",
            "/v2/models/digits/infer",
            {"content": gzip.compress(bytes(70_000_000), 1), "headers": {"content-encoding": "gzip"}},
            413,
        ),
        (
            "POST",
            "/v2/models/digits/infer",
            {"content": b"{}", "headers": {"inference-header-content-length": "9"}},
            400,
        ),
    ],
)
def test_a_broken_request_gets_the_protocols_error_object(
    server: Running, method: str, path: str, options: dict, code: int
) -> None:
    answer = httpx.request(method, f"http://{server.address}{path}", verify=False, **options)
    assert answer.status_code == code
    assert answer.json()["error"]


def test_a_body_above_the_bound_is_refused_before_it_is_sent(server: Running) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.putrequest("POST", "/v2/models/digits/infer")
    connection.putheader("content-length", str(10**10))
    connection.putheader("expect", "100-continue")
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert json.loads(answer.read())["error"] == "body: must be at most 67108864 bytes, got 10000000000"
    connection.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_a_large_body_to_its_end_reads_the_413(server: Running, *, chunked: bool) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=20)
    chunk, count = bytes(1024 * 1024), 96
    headers = {} if chunked else {"content-length": str(len(chunk) * count)}
    body = (chunk for _ in range(count))
    connection.request("POST", "/v2/models/digits/infer", body, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    assert answer.status == 413
    assert "body: must be at most 67108864 bytes" in json.loads(answer.read())["error"]
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_ready_server_reports_the_phases_of_its_start(server: Running) -> None:
    answer = httpx.get(f"http://{server.address}/v2/health/ready", verify=False)
    timing = dict(re.findall(r"(\w+);dur=([0-9.]+)", answer.headers["server-timing"]))
    assert list(timing) == ["import", "verify", "load", "warmup"]
    assert float(timing["import"]) > float(timing["verify"]) > 0
    assert float(answer.headers["x-slipway-started"]) > 1.7e9
    assert "server-timing" not in httpx.get(f"http://{server.address}/v2/health/live", verify=False).headers
