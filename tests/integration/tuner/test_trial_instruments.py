"""The requests of a trial, planned from the replica's metadata."""

import asyncio
import json

import pytest

from serving.resources.load import Load, RequestTemplate
from serving.resources.trial import TrialSpec
from tests.fakes import instruments
from tests.fakes.kube import FakeKube
from tests.rig.tcp_server import tcp_server
from tuner.settings import LoadSettings
from tuner.trials.instruments import RealInstruments

METADATA = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}


@pytest.mark.parametrize(
    ("load", "expected"),
    [(Load(), ["GET /v2/models/m"]), (Load(request_template=RequestTemplate(path="/mine")), [])],
    ids=["described", "templated"],
)
async def test_metadata_is_read_when_the_load_has_no_requests(load: Load, expected: list[str]) -> None:
    received: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        received.append(head.partition(" HTTP")[0])
        body = json.dumps(METADATA).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()

    trial = instruments.trial("pe-1")
    spec = TrialSpec.model_validate(trial["spec"]).model_copy(update={"load": load})
    async with tcp_server(answer) as port:
        real = RealInstruments(FakeKube(), LoadSettings(), None)  # type: ignore[arg-type]
        plan = await real.plan(trial, spec, f"http://127.0.0.1:{port}")
    assert received == expected
    assert plan.requests[0].path == ("/v2/models/m/infer" if expected else "/mine")
