"""The scikit-learn runtime as a process of its own, spoken to by tritonclient as it comes and by raw HTTP."""

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from serving.images import disk
from serving.images.build import Built, capture
from serving.images.store import ModelStore
from serving.runtimes import train_digits

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Running:
    """A started server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def start(built: Built, models: Path, log: Path, **changed: str) -> Running:
    port = free_port()
    environment = {
        **os.environ,
        "SLIPWAY_MODEL_NAME": "digits",
        "SLIPWAY_MODEL_VERSION": "digits-v1",
        "SLIPWAY_MODEL_DIR": str(models),
        "SLIPWAY_MODEL_DIGEST": built.digest,
        "HOST": "127.0.0.1",
        "PORT": str(port),
        **changed,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "serving.runtimes.sklearn_server"], cwd=ROOT, env=environment, stderr=output
        )  # fmt: skip
    return Running(process, port, log)


def wait_ready(server: Running) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        assert server.process.poll() is None, server.log.read_text()
        try:
            if httpx.get(f"http://{server.address}/v2/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"not ready: {server.log.read_text()}")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelStore, Built]:
    base = tmp_path_factory.mktemp("image")
    model, metrics = train_digits.train("logistic", seed=1)
    train_digits.write(model, metrics, base / "out")
    store = ModelStore(base / "store")
    return store, capture(base / "out", store, repository="slipway.local/default/digits", lineage={})


@pytest.fixture(scope="module")
def server(image: tuple[ModelStore, Built], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store, built = image
    running = start(built, store.tree(built.digest) / "models", tmp_path_factory.mktemp("log") / "log")
    wait_ready(running)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
def client(server: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.address) as found:
        yield found


def digits_input(images: np.ndarray, *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput("input", list(images.shape), "FP64")
    tensor.set_data_from_numpy(images, binary_data=binary)
    return tensor


def test_tritonclient_finds_a_live_ready_described_model(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "digits-v1")
    assert not client.is_model_ready("digits", "digits-v2")
    assert not client.is_model_ready("other")
    assert client.get_model_metadata("digits") == {
        "name": "digits",
        "versions": ["digits-v1"],
        "platform": "sklearn",
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
    images, labels = train_digits.held_out()
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


def test_only_what_is_requested_is_returned(client: triton.InferenceServerClient) -> None:
    images, _ = train_digits.held_out()
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
        (np.full((1, 64), np.nan), "FP64", "input", "inputs[0]: the model refuses it: Input X contains NaN"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_field_rule_and_value(
    client: triton.InferenceServerClient, tensor: np.ndarray, datatype: str, name: str, says: str
) -> None:
    given = triton.InferInput(name, list(tensor.shape), datatype)
    given.set_data_from_numpy(tensor)
    with pytest.raises(InferenceServerException, match=re.escape(says)) as caught:
        client.infer("digits", [given])
    assert caught.value.status() == "400"


def test_an_output_that_the_model_does_not_have_is_refused(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=r"outputs\[0\]\.name: must be one of predict, prob"):
        client.infer(
            "digits", [digits_input(np.zeros((1, 64)))], outputs=[triton.InferRequestedOutput("score")]
        )


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
        ("POST", "/v2/models/digits/infer", {"content": gzip.compress(b"{}")[:-3], "headers": {"content-encoding": "gzip"}}, 400),
        ("POST", "/v2/models/digits/infer", {"content": gzip.compress(bytes(70_000_000), 1), "headers": {"content-encoding": "gzip"}}, 400),
        ("POST", "/v2/models/digits/infer", {"content": b"{}", "headers": {"inference-header-content-length": "9"}}, 400),
    ],
)  # fmt: skip
def test_a_broken_request_gets_the_protocols_error_object(
    server: Running, method: str, path: str, options: dict, code: int
) -> None:
    answer = httpx.request(method, f"http://{server.address}{path}", **options)
    assert answer.status_code == code
    assert answer.json()["error"]


def test_a_body_above_the_bound_is_refused_before_it_is_sent(server: Running) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.putrequest("POST", "/v2/models/digits/infer")
    connection.putheader("content-length", str(10**10))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400
    assert "body: must be at most" in json.loads(answer.read())["error"]
    connection.close()


def test_sigterm_finishes_what_is_in_flight_and_exits_0(
    image: tuple[ModelStore, Built], tmp_path: Path
) -> None:
    store, built = image
    running = start(built, store.tree(built.digest) / "models", tmp_path / "log")
    wait_ready(running)
    document = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]}
    codes: list[int] = []
    failed: list[Exception] = []
    told = threading.Event()

    def keep_asking() -> None:
        with httpx.Client(base_url=f"http://{running.address}") as session:
            while True:
                try:
                    answer = session.post("/v2/models/digits/infer", json=document)
                except httpx.ConnectError:
                    return  # the listener is closed: a gateway takes another replica
                except httpx.TransportError as error:
                    failed.append(error)
                    return
                codes.append(answer.status_code)
                told.set()
                if answer.headers.get("connection") == "close":
                    return

    callers = [threading.Thread(target=keep_asking) for _ in range(4)]
    for caller in callers:
        caller.start()
    assert told.wait(20)
    running.process.send_signal(signal.SIGTERM)
    for caller in callers:
        caller.join(20)
    assert running.process.wait(20) == 0
    assert failed == []
    assert set(codes) == {200}


def test_readiness_fails_and_liveness_holds_while_stopping(
    image: tuple[ModelStore, Built], tmp_path: Path
) -> None:
    store, built = image
    running = start(built, store.tree(built.digest) / "models", tmp_path / "log")
    wait_ready(running)
    running.process.send_signal(signal.SIGTERM)
    seen: set[tuple[int, int, str]] = set()
    while running.process.poll() is None:
        try:
            ready = httpx.get(f"http://{running.address}/v2/health/ready")
            live = httpx.get(f"http://{running.address}/v2/health/live")
        except httpx.TransportError:
            break
        seen.add((ready.status_code, live.status_code, ready.headers.get("connection", "")))
    assert running.process.wait(20) == 0
    assert (503, 200, "close") in seen


@pytest.fixture
def mounted(image: tuple[ModelStore, Built], tmp_path: Path) -> Path:
    """A writable copy of the image as it is mounted."""
    store, built = image
    copy = tmp_path / "mnt"
    for source in store.tree(built.digest).rglob("*"):
        if source.is_file():
            target = copy / source.relative_to(store.tree(built.digest))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return copy


@pytest.mark.parametrize("how", ["pickle", "manifest", "extra", "missing", "digest", "link"])
def test_what_is_not_the_model_versions_is_refused_without_unpickling(
    how: str, image: tuple[ModelStore, Built], mounted: Path, tmp_path: Path
) -> None:
    _, built = image
    bomb = tmp_path / "exploded"
    model = mounted / "models" / "model.joblib"
    evil = b"cposix\nsystem\n(S'touch " + str(bomb).encode() + b"'\ntR."
    changed = {}
    if how == "pickle":
        model.write_bytes(evil)
    elif how == "manifest":
        model.write_bytes(evil)
        manifest = mounted / "manifest.json"
        old = next(file.digest for file in built.files if file.path == "model.joblib")
        manifest.write_text(manifest.read_text().replace(old, disk.file_digest(model)))
    elif how == "extra":
        (mounted / "models" / "more.py").write_text("x")
    elif how == "missing":
        (mounted / "models" / "slipway.json").unlink()
    elif how == "link":
        model.rename(tmp_path / "elsewhere")
        model.symlink_to(tmp_path / "elsewhere")
    else:
        changed = {"SLIPWAY_MODEL_DIGEST": "sha256:" + "0" * 64}
    refused = start(built, mounted / "models", tmp_path / "log", **changed)
    assert refused.process.wait(DEADLINE) == 1
    assert "DigestMismatch" in refused.log.read_text()
    assert not bomb.exists()


def test_a_variable_that_is_missing_is_named_and_exits_2(
    image: tuple[ModelStore, Built], tmp_path: Path
) -> None:
    refused = start(image[1], tmp_path, tmp_path / "log", SLIPWAY_MODEL_DIGEST="")
    assert refused.process.wait(DEADLINE) == 2
    assert "SLIPWAY_MODEL_DIGEST" in refused.log.read_text()


def test_a_pickle_that_is_no_estimator_is_refused(tmp_path: Path) -> None:
    import joblib

    (tmp_path / "out").mkdir()
    joblib.dump({"not": "a model"}, tmp_path / "out" / "model.joblib")
    store = ModelStore(tmp_path / "store")
    built = capture(tmp_path / "out", store, repository="r", lineage={})
    refused = start(built, store.tree(built.digest) / "models", tmp_path / "log")
    assert refused.process.wait(DEADLINE) == 1
    assert "UnsupportedModel: dict is no scikit-learn estimator" in refused.log.read_text()
