"""The requests of a trial, planned from the replica's metadata."""

import asyncio
import json
import threading

import pytest

from serving import errors
from serving.resources import kinds
from serving.resources.tuning.load import ExperimentLoad, RequestTemplate
from serving.resources.tuning.trial import TrialSpec
from tests.fakes import instruments
from tests.fakes.kube import FakeKube
from tests.rig.machine.tcp_server import tcp_server
from tuner.load import requests
from tuner.load.plan import LoadPlan
from tuner.settings import LoadSettings
from tuner.trials.instruments import RealInstruments

METADATA = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (ExperimentLoad(), ["GET /v2/models/m"]),
        (ExperimentLoad(request_template=RequestTemplate(path="/mine")), []),
    ],
    ids=["described", "templated"],
)
async def test_metadata_is_read_when_the_load_has_no_requests(
    load: ExperimentLoad, expected: list[str]
) -> None:
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


@pytest.mark.parametrize("answer", ["503 Service Unavailable", "429 Too Many Requests", ""])
async def test_metadata_is_asked_for_again_when_the_replica_does_not_give_it_now(answer: str) -> None:
    async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer:
            writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode())

    real = RealInstruments(FakeKube(), LoadSettings(), None)  # type: ignore[arg-type]
    async with tcp_server(replica) as port:
        with pytest.raises(errors.Temporary, match=r"GET http://.*/v2/models/m: ") as raised:
            await real._description(f"http://127.0.0.1:{port}/v2/models/m")
    assert raised.value.reason == "LoadFailed"


async def test_load_is_invalid_when_there_is_no_metadata() -> None:
    async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    real = RealInstruments(FakeKube(), LoadSettings(), None)  # type: ignore[arg-type]
    trial = instruments.trial("pe-1", load={"mode": "closed"})
    spec = TrialSpec.model_validate(trial["spec"])
    async with tcp_server(replica) as port:
        with pytest.raises(errors.Permanent, match="has no inputs of the model"):
            await real.plan(trial, spec, f"http://127.0.0.1:{port}")


async def test_requests_are_made_in_a_thread_when_a_trial_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def plan(*_: object, **__: object) -> LoadPlan:
        threads.append(threading.get_ident())
        return LoadPlan("closed", ())

    monkeypatch.setattr(requests, "plan", plan)
    real = RealInstruments(FakeKube(), LoadSettings(), None)  # type: ignore[arg-type]
    trial = instruments.trial("pe-1", load={"requestTemplate": {"path": "/mine"}})
    await real.plan(trial, TrialSpec.model_validate(trial["spec"]), "http://127.0.0.1:9")
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def to_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", to_thread)


@pytest.mark.usefixtures("no_thread")
async def test_load_is_tried_again_when_no_thread_can_be_started() -> None:
    real = RealInstruments(FakeKube(), LoadSettings(), None)  # type: ignore[arg-type]
    trial = instruments.trial("pe-1", load={"requestTemplate": {"path": "/mine"}})
    with pytest.raises(errors.Temporary, match="can't start new thread") as raised:
        await real.plan(trial, TrialSpec.model_validate(trial["spec"]), "http://127.0.0.1:9")
    assert raised.value.reason == "LoadFailed"


@pytest.mark.usefixtures("no_thread")
async def test_usage_and_machine_are_unknown_when_no_thread_can_be_started() -> None:
    class Node(FakeKube):
        async def raw(self, path: str, query: object = None) -> bytes:
            return b""

    real = RealInstruments(Node("slipway-trial"), LoadSettings(), None)  # type: ignore[arg-type]
    pod = {"metadata": {"name": "pe-1", "namespace": instruments.NS}, "spec": {"nodeName": "local"}}
    assert await real.usage(pod) is None
    assert await real.machine(pod) == ""


async def test_load_is_invalid_when_its_config_map_is_no_text() -> None:
    api = FakeKube()
    api.add(
        kinds.CONFIG_MAP,
        {"metadata": {"name": "recorded", "namespace": instruments.NS}, "binaryData": {"lines": "/w=="}},
    )
    real = RealInstruments(api, LoadSettings(), None)  # type: ignore[arg-type]
    trial = instruments.trial("pe-1", load={"requests": {"name": "recorded", "key": "lines"}})
    spec = TrialSpec.model_validate(trial["spec"])
    with pytest.raises(errors.Permanent, match="ConfigMap recorded: lines must be UTF-8") as raised:
        await real.plan(trial, spec, "http://127.0.0.1:9")
    assert raised.value.reason == "LoadFailed"


@pytest.mark.parametrize("answer", ["endless", "redirect", "deep"])
async def test_metadata_is_unknown_when_the_answer_is_endless_or_elsewhere(answer: str) -> None:
    asked: list[bytes] = []

    async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if answer == "redirect":
            writer.write(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")
        elif answer == "deep":
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"[" * 100_000)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(1000):
                writer.write(b"a" * 65_536)
                await writer.drain()

    real = RealInstruments(FakeKube(), LoadSettings(), None)  # type: ignore[arg-type]
    async with tcp_server(replica) as port:
        assert await real._description(f"http://127.0.0.1:{port}/v2/models/m") is None
    assert len(asked) == 1


@pytest.mark.parametrize("page", [b"<html>no metrics</html>", b"\xff"])
async def test_usage_and_machine_are_unknown_when_the_nodes_page_has_another_format(page: bytes) -> None:
    class Node(FakeKube):
        async def raw(self, path: str, query: object = None) -> bytes:
            return page

    real = RealInstruments(Node("slipway-trial"), LoadSettings(), None)  # type: ignore[arg-type]
    pod = {"metadata": {"name": "pe-1", "namespace": instruments.NS}, "spec": {"nodeName": "local"}}
    assert await real.usage(pod) is None
    assert await real.machine(pod) == ""
