"""Probes of candidates, against servers at a Unix socket as Envoy's private listener is one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp.web
import pytest

from serving import clock
from serving.kube import Key
from serving.objects import Object
from serving.router import prober
from serving.router.plan.service import Candidate, GatewayService, gateway_service
from serving.router.prober import ANSWER_BYTES, CandidateProbes, Prober
from serving.settings import DEFAULTS
from tests.rig.control_plane.convergence import running, until

KEY = Key("n", "digits")


class PrivateListener:
    """Answers 200 to every GET, and 503 to paths that begin with one of `sick`."""

    def __init__(self) -> None:
        self.sick: set[str] = set()
        self.requests: list[str] = []

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        self.requests.append(request.path)
        is_sick = request.path.startswith(tuple(self.sick))
        return aiohttp.web.Response(status=503 if is_sick else 200, text="no\n model")

    @asynccontextmanager
    async def at(self, path: Path) -> AsyncIterator[None]:
        app = aiohttp.web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        runner = aiohttp.web.AppRunner(app)
        await runner.setup()
        await aiohttp.web.UnixSite(runner, str(path)).start()
        try:
            yield
        finally:
            await runner.cleanup()


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[PrivateListener]:
    listener = PrivateListener()
    async with listener.at(tmp_path / "probe.sock"):
        yield listener


@pytest.fixture
async def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CandidateProbes]:
    monkeypatch.setattr(prober, "RETRY_SECONDS", 0.01)
    reports.clear()
    probes = CandidateProbes(
        Prober(tmp_path / "probe.sock", 5.0),
        DEFAULTS.gateway,
        lambda key, results: reports.append((key, results)),
    )
    async with running(probes.run()):
        yield probes


reports: list[tuple[Key, dict[str, str]]] = []


def candidate(*paths: str, backend: str = "good") -> Candidate:
    return Candidate(backend, f"/n/{backend}", paths, h2c=False, has_replica=True)


def service(**backends: tuple[int, list[str]]) -> GatewayService:
    """Return a service with these backends: ready replicas, and paths to probe."""
    entries: list[Object] = [
        {"name": name, "arm": name, "service": name, "port": 8080, "probe": paths}
        for name, (_, paths) in backends.items()
    ]
    slices: dict[str, list[Object]] = {
        name: [
            {
                "ports": [{"port": 8080}],
                "endpoints": [{"addresses": [f"127.0.0.{n}"]} for n in range(1, count + 1)],
            }
        ]
        for name, (count, _) in backends.items()
    }
    route = {
        "metadata": {"namespace": "n", "name": "digits"},
        "spec": {"inference": "digits", "backends": entries, "segments": []},
    }
    return gateway_service(route, slices)


async def test_verdict_is_the_first_response_that_is_not_200(
    listener: PrivateListener, tmp_path: Path
) -> None:
    listener.sick = {"/n/good/sick"}
    prober = Prober(tmp_path / "probe.sock", 5.0)
    assert await prober.first_failure(candidate("/v2/health/ready", "/v2/models/m/ready")) == ""
    assert await prober.first_failure(candidate("/a", "/sick", "/b")) == "GET /sick: 503 no model"
    assert listener.requests[-1] == "/n/good/sick"
    await prober.close()


async def test_probe_fails_when_nobody_listens(tmp_path: Path) -> None:
    prober = Prober(tmp_path / "probe.sock", 5.0)
    assert (await prober.first_failure(candidate("/a"))).startswith("GET /a: ")
    await prober.close()


async def test_probe_fails_when_the_answer_is_endless(tmp_path: Path) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"a" * 65_536)
                await writer.drain()

    server = await asyncio.start_unix_server(endless, tmp_path / "probe.sock")
    prober = Prober(tmp_path / "probe.sock", 5.0)
    assert (
        await prober.first_failure(candidate("/a")) == f"GET /a: an answer of more than {ANSWER_BYTES} bytes"
    )
    await prober.close()
    server.close()


async def test_candidate_is_probed_until_it_succeeds_and_each_new_result_is_reported(
    listener: PrivateListener, probes: CandidateProbes
) -> None:
    listener.sick = {"/n/new/"}
    assert probes.follow(KEY, service(new=(1, ["/ready"]), other=(1, ["/ready"]))) == {}
    await until(lambda: listener.requests.count("/n/new/ready") > 3)
    assert reports[-1] == (KEY, {"new": "GET /ready: 503 no model", "other": ""})
    assert len(reports) == 2, "a result that is as before is not reported again"
    listener.sick.clear()
    await until(lambda: reports[-1] == (KEY, {"new": "", "other": ""}))
    requests = len(listener.requests)
    assert probes.follow(KEY, service(new=(2, ["/ready"]), other=(1, ["/ready"]))) == {"new": "", "other": ""}
    await asyncio.sleep(5 * prober.RETRY_SECONDS)
    assert len(listener.requests) == requests, "a proven candidate is not probed again"


class Counting:
    """In place of a Prober: each probe takes a second, and fails with another text until the last."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.time = 0.0

    async def first_failure(self, _: Candidate) -> str:
        self.time += 1
        return f"GET /ready: 503 {self.time:.0f} s" if self.time < self.seconds else ""

    async def close(self) -> None: ...


async def test_failure_is_reported_every_30_s_at_most_when_only_its_text_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prober, "RETRY_SECONDS", 0.0)
    counting, times = Counting(70), dict[float, str]()
    monkeypatch.setattr(clock, "monotonic", lambda: counting.time)

    def report(_: Key, results: dict[str, str]) -> None:
        times[counting.time] = results["new"]

    probes = CandidateProbes(counting, DEFAULTS.gateway, report)  # type: ignore[arg-type]
    async with running(probes.run()):
        await asyncio.sleep(0)
        probes.follow(KEY, service(new=(1, ["/ready"])))
        await until(lambda: "" in times.values())
    assert times == {n: f"GET /ready: 503 {n} s" for n in (1, 2, 32, 62)} | {70: ""}


LEAVES: dict[str, Callable[[], GatewayService | None]] = {
    "without a replica": lambda: service(new=(0, ["/ready"])),
    "once proven": lambda: service(new=(1, [])),
    "without its Route": lambda: None,
}


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
async def test_result_is_dropped_and_the_probe_ends(
    listener: PrivateListener, probes: CandidateProbes, leave: Callable[[], GatewayService | None]
) -> None:
    listener.sick = {"/n/new/"}
    probes.follow(KEY, service(new=(1, ["/ready"])))
    await until(lambda: bool(reports))
    assert probes.follow(KEY, leave()) == {}
    await asyncio.sleep(0)
    requests = len(listener.requests)
    await asyncio.sleep(5 * prober.RETRY_SECONDS)
    assert len(listener.requests) <= requests + 1, "one request may have been under way"
    assert probes.follow(KEY, service(new=(1, ["/ready"]))) == {}, "the next replica is probed anew"
    listener.sick.clear()
    await until(lambda: reports[-1] == (KEY, {"new": ""}))
