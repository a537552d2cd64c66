"""Arrivals from counters that are reset, and recordings that are readable whenever they end."""

import asyncio
import gzip
from pathlib import Path
from typing import Literal

import pytest

from autoscaler.simulate.workloads.traces import BinTrace, parse
from serving import clock, errors, metrics
from serving.cli.autoscale import record
from serving.cli.autoscale.record import (
    GONE_SECONDS,
    HEADER,
    MEMBER_SECONDS,
    CountedPredictor,
    Counter,
    Trace,
    counts,
)
from serving.cli.autoscale.sources import text
from serving.system.network import http_reading
from tests.rig.machine.tcp_server import tcp_server

DIGITS = CountedPredictor("default", "digits", "stable")
PAGE = """\
# HELP slipway_requests_received_total Requests that came.
# TYPE slipway_requests_received_total counter
slipway_requests_received_total{inference="digits",namespace="default",predictor="stable",revision="1"} 7
slipway_requests_received_total{inference="digits",namespace="default",predictor="stable",revision="2"} 5
slipway_requests_received_total{inference="digits",namespace="default",predictor="new",revision="3"} 11
slipway_requests_received_total{inference="digits",namespace="other",predictor="stable",revision="1"} 13
# TYPE slipway_requests_total counter
slipway_requests_total{inference="digits",namespace="default",predictor="stable",revision="1"} 17
"""


def test_counts_are_those_of_the_predictor_by_revision() -> None:
    assert sorted((counts(PAGE, DIGITS) or {}).values()) == [5, 7]


def test_page_is_not_a_gateway_s_when_it_lacks_the_metric() -> None:
    assert counts("# nothing\n", DIGITS) is None
    assert counts("# TYPE slipway_requests_received_total counter\n", DIGITS) == {}


async def test_page_is_none_of_a_gateway_when_another_process_sends_too_much_or_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_BYTES", len(PAGE))
    answers = {
        "page": b"200 OK\r\n\r\n" + PAGE.encode(),
        "moved": b"302 Found\r\nlocation: /page\r\n\r\n",
        "long": b"200 OK\r\n\r\n" + PAGE.encode() + b"\n",
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        writer.write(b"HTTP/1.1 " + answers[path.removeprefix("/")])

    async with tcp_server(answer) as port, http_reading.session() as session:
        urls = {name: f"http://127.0.0.1:{port}/{name}" for name in answers}
        assert (await record._read(session, urls, DIGITS)).keys() == {"page"}


def test_requests_before_the_recording_are_not_counted() -> None:
    counter = Counter()
    assert counter.arrived({"a": {"r": 100}}) == 0
    assert counter.arrived({"a": {"r": 103}}) == 3


def test_counts_of_gateways_are_added() -> None:
    counter = Counter()
    counter.arrived({"a": {"r": 1}, "b": {"r": 10}})
    assert counter.arrived({"a": {"r": 2}, "b": {"r": 12}}) == 3


def test_a_new_revision_of_a_known_gateway_counts_from_zero() -> None:
    counter = Counter()
    counter.arrived({"a": {}})
    assert counter.arrived({"a": {"r": 4}}) == 4


def test_a_new_gateway_adds_no_earlier_requests() -> None:
    counter = Counter()
    counter.arrived({"a": {"r": 1}})
    assert counter.arrived({"a": {"r": 1}, "b": {"r": 500}}) == 0
    assert counter.arrived({"a": {"r": 1}, "b": {"r": 501}}) == 1


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    counter = Counter()
    counter.arrived({"a": {"r": 100}})
    assert counter.arrived({"a": {"r": 3}}) == 3


def test_requests_of_a_gateway_that_was_silent_are_counted_later() -> None:
    counter = Counter()
    counter.arrived({"a": {"r": 1}, "b": {"r": 1}})
    counter.arrived({"a": {"r": 1}})
    assert counter.arrived({"a": {"r": 1}, "b": {"r": 9}}) == 8


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_recording_is_a_valid_trace(tmp_path: Path, name: str) -> None:
    trace = Trace(tmp_path / name)
    for second in range(100):
        trace.add(1_700_000_000 + second, 1, second)
    assert trace.close() == 100
    parsed = parse(name, text(tmp_path / name))
    assert isinstance(parsed, BinTrace)
    assert (parsed.start, parsed.step) == (1_700_000_000, 1)
    assert parsed.rates.tolist() == list(range(100))


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_recording_is_readable_when_it_was_killed(tmp_path: Path, name: str) -> None:
    trace = Trace(tmp_path / name)
    for second in range(MEMBER_SECONDS + 5):
        trace.add(second, 1, 2)
    lines = text(tmp_path / name).splitlines()  # as a SIGKILL leaves it: nothing was closed
    assert lines[0] + "\n" == HEADER
    assert len(lines) - 1 >= MEMBER_SECONDS
    assert all(line.endswith(",2") for line in lines[1:])
    trace.close()


def test_requests_are_spread_over_seconds_without_a_sample(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "x.csv")
    trace.add(10, 4, 6)
    trace.close()
    assert (tmp_path / "x.csv").read_text() == HEADER + "10,1.5\n11,1.5\n12,1.5\n13,1.5\n"


async def test_a_recording_ends_when_its_duration_is_no_whole_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: object) -> dict[str, dict[str, float]]:
        return {"gateway": {"digits-1": 1.0}}

    monkeypatch.setattr(record, "_read", read)
    trace = Trace(tmp_path / "x.csv")
    async with http_reading.session() as session, asyncio.timeout(5):
        await record._add_rows(session, dict, DIGITS, Counter(), trace, asyncio.Event(), 0.5)
    assert trace.close() == 1


class Recording(asyncio.Event):
    """A recording whose pages are read once a second of its own time; a page that fails takes a second."""

    def __init__(self, folder: Path, readings: list[dict[str, dict[str, float]]]) -> None:
        super().__init__()
        self.path = folder / "x.csv"
        self.counter = Counter()
        self.counter.arrived(readings[0])
        self.readings = readings[1:]
        self.known = readings[0].keys()
        self.now = 0.0

    async def wait(self) -> Literal[True]:
        self.now += 1.0
        return True

    async def read(self, *_: object) -> dict[str, dict[str, float]]:
        reading = self.readings.pop(0)
        if reading.keys() < self.known:
            self.now += 1.0
        if not self.readings:
            self.set()
        return reading

    async def rows(self, monkeypatch: pytest.MonkeyPatch, limit: float = 1000.0) -> list[float]:
        """Return the requests of each second."""
        monkeypatch.setattr(record, "_read", self.read)
        monkeypatch.setattr(record, "TIMEOUT_SECONDS", 0.0)
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        async with http_reading.session() as session, asyncio.timeout(5):
            trace = Trace(self.path)
            await record._add_rows(session, dict, DIGITS, self.counter, trace, self, limit)
        trace.close()
        return [float(line.split(",")[1]) for line in self.path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("other", [{}, {"b": {"r": 1.0}}], ids=["alone", "beside another"])
async def test_requests_are_spread_over_the_seconds_in_which_a_gateway_did_not_answer(
    other: dict[str, dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{"a": {"r": count}, **other} for count in (0.0, 10.0, 50.0)]
    recording = Recording(tmp_path, [*answers[:2], *[other] * 3, answers[2]])
    assert await recording.rows(monkeypatch) == [10.0] * 5


async def test_recording_goes_on_without_a_gateway_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = GONE_SECONDS + 1
    readings = [{"b": {"r": 10.0 * second}} for second in range(1, seconds + 1)]
    back = [{"a": {"r": count}, **readings[-1]} for count in (500.0, 501.0)]
    recording = Recording(tmp_path, [{"a": {"r": 0.0}, "b": {"r": 0.0}}, *readings, *back])
    assert await recording.rows(monkeypatch) == [10.0] * seconds + [0.0, 1.0]


async def test_recording_ends_without_a_peak_when_its_gateway_was_silent_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(tmp_path, [{"a": {"r": 0.0}}, *[{}] * 3, {"a": {"r": 40.0}}])
    assert await recording.rows(monkeypatch, limit=2.0) == [10.0] * 2


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("mine")
    with pytest.raises(errors.UserError, match="exists: a recording"):
        Trace(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "mine"


def test_another_file_name_extension_is_refused_before_the_file_is_created(tmp_path: Path) -> None:
    with pytest.raises(errors.UserError, match=r"must end in \.csv or \.csv\.gz"):
        Trace(tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_compressed_file_has_its_header_at_once(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "x.csv.gz")
    assert gzip.decompress((tmp_path / "x.csv.gz").read_bytes()).decode() == HEADER
    trace.close()
