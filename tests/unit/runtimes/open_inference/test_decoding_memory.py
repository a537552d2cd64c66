"""The memory that decoding takes is estimated from above, and bounded."""

import gzip
import mmap
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from serving import errors
from serving.runtimes import request_memory
from serving.runtimes.batching.predictions import SinglePredictions
from serving.runtimes.grpc import codec
from serving.runtimes.grpc import messages_pb2 as messages
from serving.runtimes.large_requests import LargeRequests
from serving.runtimes.open_inference import decoding_memory, protocol
from serving.runtimes.open_inference.app import InferenceApp
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.startup import StartupReport
from serving.settings import RuntimeSettings
from tests.objects.models.column_models import ColumnModel

MIB = 1 << 20
COUNT = 100_000
SETTINGS = RuntimeSettings()


@pytest.fixture
def app() -> Iterator[InferenceApp]:
    model: Any = ColumnModel(sums=True)
    with ThreadPoolExecutor(1) as worker:
        predictions = SinglePredictions(model, SETTINGS, worker)
        served = ServedModel("tests", "m", "v1", StartupReport(0.0))
        large = LargeRequests(RequestMemory(64 * MIB, 64 * MIB), worker)
        yield InferenceApp(model, served, SETTINGS, predictions, large)


async def post(app: InferenceApp, body: bytes, **headers: str) -> tuple[int, Any]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await app(
        {"type": "http", "method": "POST", "path": "/v2/models/m/infer", "headers": encoded}, receive, send
    )
    return sent[0]["status"], orjson.loads(sent[1]["body"])


def tensor(datatype: str, item: str, count: int = COUNT, shape: str = "") -> bytes:
    data = ",".join([item] * count)
    shape = shape or str(count)
    return f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{shape}],"data":[{data}]}}]}}'.encode()


BODIES = {
    "zeros": tensor("FP64", "0"),
    "short doubles": tensor("FP64", "0.5"),
    "long integers": tensor("INT64", "-4611686018427387905"),
    "rows": tensor("FP64", "[1.5,2.5,3.5]", shape=f"{COUNT},3"),
    "short rows": tensor("FP64", "[1.5]", shape=f"{COUNT},1"),
    "nested rows": tensor("FP64", "[[[[1.5]]]]", shape=f"{COUNT},1,1,1,1"),
    "empty strings": tensor("BYTES", '""'),
    "short strings": tensor("BYTES", '"ab"'),
    "escapes": tensor("BYTES", '"\\ud83d\\ude00"'),
    "long strings": tensor("BYTES", '"' + "a" * 1_000_000 + '"', 10),
    "wide strings": tensor("BYTES", '"' + "a" * 1_000_000 + "\U0001f600" + '"', 10),
    "empty objects": tensor("FP64", "{}"),
    "small objects": tensor("FP64", '{"a":0}'),
    "nested objects": tensor("FP64", '{"a":' * 50 + "0" + "}" * 50, 2_000),
    "nested lists": tensor("FP64", "[" * 50 + "]" * 50, 2_000),
    "objects of different keys": b'{"a":[' + b",".join(b'{"%d":0}' % i for i in range(COUNT)) + b"]}",
    "keys": b"{" + b",".join(b'"%d":0' % i for i in range(COUNT)) + b"}",
}
PEAK = """
import os, sys, contextlib
from pathlib import Path
from serving import errors
from serving.runtimes.open_inference import protocol

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

with contextlib.suppress(errors.ApiError):
    protocol.decode(b"{}", None)
for path in sys.argv[1:]:
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    body = Path(path).read_bytes()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    with contextlib.suppress(errors.ApiError):
        protocol.decode(body, None)
    print(status("VmHWM") - before, flush=True)
    os._exit(0)
"""
"""Prints the memory of decoding each file, each in a fork: one process would use the memory of the last."""


def test_decoding_json_takes_less_than_estimated(tmp_path: Path) -> None:
    files = [tmp_path / str(i) for i in range(len(BODIES))]
    for file, body in zip(files, BODIES.values(), strict=True):
        file.write_bytes(body)
    output = subprocess.check_output([sys.executable, "-c", PEAK, *map(str, files)], text=True)
    peaks = dict(zip(BODIES, map(int, output.split()), strict=True))
    estimates = {name: protocol.needed_memory(body, None) for name, body in BODIES.items()}
    assert {name for name in BODIES if peaks[name] > estimates[name]} == set(), (peaks, estimates)


def test_decoding_binary_strings_takes_less_than_estimated() -> None:
    parameters = {"binary_data_size": 6 * COUNT}
    item = {"name": "x", "datatype": "BYTES", "shape": [COUNT], "parameters": parameters}
    head = orjson.dumps({"inputs": [item]})
    body = head + b"\2\0\0\0ab" * COUNT
    estimate = protocol.needed_memory(body, str(len(head)))
    tracemalloc.start()
    protocol.decode(body, str(len(head)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < estimate


@pytest.mark.parametrize("item", ["{}", "0", "[]", '""'])
async def test_a_small_compressed_body_that_expands_to_many_values_is_refused(
    app: InferenceApp, item: str
) -> None:
    body = gzip.compress(tensor("FP64", item, 2_000_000), 9)
    assert len(body) < 20_000
    status, document = await post(app, body, content_encoding="gzip")
    assert status == 413
    assert document["error"].startswith(f"body: must be decoded within {64 * MIB} bytes of memory")


async def test_a_large_body_within_the_bound_is_answered(app: InferenceApp) -> None:
    status, document = await post(app, gzip.compress(tensor("FP64", "1")), content_encoding="gzip")
    assert (status, document["outputs"][0]["data"]) == (200, [COUNT])


def test_raw_contents_of_a_message_count_once_and_typed_ones_many_times() -> None:
    raw = messages.ModelInferRequest(raw_input_contents=[bytes(1000)]).SerializeToString()
    typed = messages.ModelInferRequest(id="x" * 1000).SerializeToString()
    assert 1000 < decoding_memory.of_message(raw) < 1200
    assert decoding_memory.of_message(typed) > 30_000


@pytest.mark.parametrize(
    "message", [b"\x2a\x00" * 2_000, b"\x2a\xff\xff\xff\x7f", b"\x2a\xff", b"\x28\x01", b"\xff" * 20]
)
def test_a_message_of_too_many_or_broken_fields_is_refused(message: bytes) -> None:
    with pytest.raises(errors.ApiError, match="message: must be a ModelInferRequest"):
        decoding_memory.of_message(message)


def test_a_message_of_as_many_fields_as_allowed_is_accepted() -> None:
    most = decoding_memory._MAX_FIELDS
    assert decoding_memory.of_message(b"\x2a\x00" * most) > 0
    with pytest.raises(errors.ApiError, match=f"at most {most} fields"):
        decoding_memory.of_message(b"\x2a\x00" * (most + 1))


def test_values_of_a_typed_message_take_less_than_estimated() -> None:
    request = messages.ModelInferRequest()
    request.inputs.add(name="x", datatype="BYTES", shape=[COUNT]).contents.bytes_contents.extend(
        [b"ab"] * COUNT
    )
    estimate = decoding_memory.of_message(request.SerializeToString())
    tracemalloc.start()
    codec.decode(request)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arena = 16 * COUNT
    assert peak + arena < estimate


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (None, 160, RequestMemory(256 * MIB, 256 * MIB)),
        (512 * MIB, 160 * MIB, RequestMemory(176 * MIB, 88 * MIB)),
        (4096 * MIB, 160 * MIB, RequestMemory(256 * MIB, 256 * MIB)),
        (128 * MIB, 120 * MIB, RequestMemory(16 * MIB, 16 * MIB)),
    ],
)
def test_memory_of_requests_follows_the_memory_limit(
    limit: int | None, used: int, expected: RequestMemory
) -> None:
    assert request_memory.shares(256 * MIB, limit, used) == expected


def test_private_memory_grows_when_memory_is_written() -> None:
    before = request_memory.private_memory()
    with mmap.mmap(-1, 32 * MIB) as written:  # memory that no earlier test has freed
        written.write(b"x" * (32 * MIB))
        assert request_memory.private_memory() - before > 30 * MIB
