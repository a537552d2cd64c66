"""What a trial asks of its replica before it is measured."""

import asyncio
import json

import pytest

from serving.resources.load import Load, RequestTemplate
from serving.resources.trial import TrialSpec
from tests.fakes import instruments
from tests.fakes.kube import FakeKube
from tuner.settings import LoadSettings
from tuner.trials.instruments import Instruments

METADATA = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}


@pytest.mark.parametrize(
    ("load", "asked"),
    [(Load(), ["GET /v2/models/m"]), (Load(request_template=RequestTemplate(path="/mine")), [])],
    ids=["described", "templated"],
)
async def test_a_model_is_asked_what_it_takes_where_the_load_does_not_say(
    load: Load, asked: list[str]
) -> None:
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heard.append(head.partition(" HTTP")[0])
        body = json.dumps(METADATA).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    found = instruments.trial("pe-1")
    spec = TrialSpec.model_validate(found["spec"]).model_copy(update={"load": load})
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        tools = Instruments(FakeKube(), LoadSettings())  # type: ignore[arg-type]
        plan = await tools.plan(found, spec, f"http://127.0.0.1:{port}")
    assert heard == asked
    assert plan.requests[0].path == ("/v2/models/m/infer" if asked else "/mine")
