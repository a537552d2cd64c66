"""What locust's process knows without locust: schedules, streams of tokens, frames."""

import itertools
import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load import wire
from tuner.load.driver import arrivals
from tuner.load.driver.latency_log import LatencyLog
from tuner.load.driver.token_stream import TokenStream
from tuner.load.plan import LoadPlan, LoadRequest


def take(gaps: Iterator[float], count: int) -> np.ndarray:
    return np.fromiter(itertools.islice(gaps, count), dtype=float)


def test_arrivals_are_poisson_and_by_seed_and_process_the_same() -> None:
    found = take(arrivals.poisson(1, 0), 20_000)
    assert found.mean() == pytest.approx(1, abs=0.03)
    assert found.std() == pytest.approx(1, abs=0.05)
    assert (take(arrivals.poisson(1, 0), 50) == found[:50]).all()
    assert (take(arrivals.poisson(1, 1), 50) != found[:50]).any()
    assert (take(arrivals.poisson(2, 0), 50) != found[:50]).any()


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_recorded_arrivals_keep_their_shape_in_any_number_of_processes(processes: int) -> None:
    moments = [5.0, 5.5, 7.0, 11.0]
    requests = [LoadRequest("GET", "/", at=moment) for moment in moments]
    together = np.sort(
        np.concatenate(
            [np.cumsum(take(arrivals.recorded(requests, number, processes), 24 // processes)) for number in range(processes)]
        )
    )  # fmt: skip
    gaps = np.diff(together) * processes
    whole = (
        np.array([0.5, 1.5, 4.0, 2.0]) / 2.0
    )  # of a mean gap of 2; the last is from its end to its new beginning
    assert gaps == pytest.approx(np.tile(whole, 6)[:23])


def test_one_recorded_request_is_sent_evenly() -> None:
    gaps = take(arrivals.recorded([LoadRequest("GET", "/", at=3.0)], 0, 1), 4)
    assert list(gaps) == [0.0, 1.0, 1.0, 1.0]


def test_a_stream_says_when_its_text_came_and_what_the_server_counted() -> None:
    tokens = TokenStream()
    lines = [
        b'data: {"choices":[{"delta":{"role":"assistant"}}]}',
        b": a comment",
        b'data: {"choices":[{"delta":{"content":"a"}}]}',
        b'data: {"choices":[{"text":"b"}]}',
        b'data: {"choices":[],"usage":{"completion_tokens":9}}',
        b"data: [DONE]",
    ]
    for number, line in enumerate(lines):
        tokens.read(line + b"\n", float(number))
    assert tokens.moments == [2.0, 3.0]
    assert tokens.gaps() == [1.0]
    assert (tokens.count, tokens.finished, tokens.error) == (9, True, "")


@pytest.mark.parametrize("line", [b"data: {", b'data: {"error": {"message": "no"}}', b"data: 3"])
def test_a_stream_that_says_nonsense_has_failed(line: bytes) -> None:
    tokens = TokenStream()
    tokens.read(line, 0.0)
    assert tokens.error


@given(st.binary(max_size=200))
def test_no_line_of_a_stream_raises(line: bytes) -> None:
    TokenStream().read(b"data: " + line, 0.0)


@pytest.mark.parametrize(
    "content", [b"[]", b'"x"', b'{"choices": 3}', b'{"choices": [3]}', b'{"choices":[{"delta": 3}]}']
)
def test_json_of_another_shape_has_no_text(content: bytes) -> None:
    tokens = TokenStream()
    tokens.read(b"data: " + content, 0.0)
    assert tokens.count == 0


def test_records_are_taken_once_and_texts_come_before_the_records_that_name_them() -> None:
    recorder = LatencyLog()
    recorder.ends(recorder.begins(1.0), done=2.0, behind=0.0, error="")
    recorder.ends(recorder.begins(1.5), done=3.0, behind=0.1, error="status 500", gaps=[0.5])
    recorder.begins(4.0)
    found = list(wire.frames(bytearray(recorder.take())))
    assert [kind for kind, _ in found] == [wire.ERROR, wire.TOKEN_GAPS, wire.RECORDS]
    rows = np.frombuffer(found[2][1], dtype=np.dtype(list(wire.FIELDS)))
    assert rows.dtype.itemsize == wire.RECORD.size
    assert list(rows["done"]) == [2.0, 3.0]
    assert list(rows["error"]) == [0, 1]
    assert list(recorder.unanswered.values()) == [4.0]
    assert recorder.take() == b""


def test_a_server_that_varies_its_errors_fills_no_memory() -> None:
    recorder = LatencyLog()
    for number in range(1000):
        recorder.record(0.0, 1.0, f"error {number} " + "x" * 10_000)
    frames = list(wire.frames(bytearray(recorder.take())))
    texts = [content for kind, content in frames if kind == wire.ERROR]
    assert len(texts) == 65
    assert texts[-1] == b"other errors"
    assert max(len(text) for text in texts) <= 200


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 20))
def test_frames_come_out_whole_however_they_arrive(contents: list[bytes], piece: int) -> None:
    sent = b"".join(wire.frame(wire.REPLY, content) for content in contents)
    buffer, found = bytearray(), []
    for start in range(0, len(sent), piece):
        buffer += sent[start : start + piece]
        found += [content for _, content in wire.frames(buffer)]
    assert found == contents
    assert not buffer


def test_a_plan_arrives_as_it_was() -> None:
    request = LoadRequest("POST", "/x", {"a": "b"}, bytes(range(256)), at=1.5, stream=True)
    line = wire.plan_line(
        LoadPlan("open", (request,), 3), url="http://x", share=(0, 1), timeout=1.0, most_unanswered=5
    )
    said = json.loads(line)
    assert wire.read_requests(said) == [request]
