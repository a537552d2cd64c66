"""The parts of a locust process without locust: arrivals, token streams, log, frames."""

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


def test_arrivals_are_poisson_and_reproducible_by_seed_and_process() -> None:
    gaps = take(arrivals.poisson(1, 0), 20_000)
    assert gaps.mean() == pytest.approx(1, abs=0.03)
    assert gaps.std() == pytest.approx(1, abs=0.05)
    assert (take(arrivals.poisson(1, 0), 50) == gaps[:50]).all()
    assert (take(arrivals.poisson(1, 1), 50) != gaps[:50]).any()
    assert (take(arrivals.poisson(2, 0), 50) != gaps[:50]).any()


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_recorded_arrivals_keep_their_shape_in_any_number_of_processes(processes: int) -> None:
    moments = [5.0, 5.5, 7.0, 11.0]
    requests = [LoadRequest("GET", "/", at=moment) for moment in moments]
    each = [
        np.cumsum(take(arrivals.recorded(requests, number, processes), 24 // processes))
        for number in range(processes)
    ]
    gaps = np.diff(np.sort(np.concatenate(each))) * processes
    # In units of the mean gap of 2; the last gap is that between two repetitions.
    recording = np.array([0.5, 1.5, 4.0, 2.0]) / 2.0
    assert gaps == pytest.approx(np.tile(recording, 6)[:23])


@pytest.mark.parametrize("processes", [1, 2])
def test_burst_of_all_recorded_requests_keeps_the_rate(processes: int) -> None:
    """The next burst comes after the time of as many requests at the given rate."""
    requests = [LoadRequest("GET", "/", at=5.0)] * 4
    each = [
        np.cumsum(take(arrivals.recorded(requests, number, processes), 12 // processes))
        for number in range(processes)
    ]
    moments = np.sort(np.concatenate(each)) * processes
    assert list(moments) == [0.0] * 4 + [4.0] * 4 + [8.0] * 4


def test_single_recorded_request_is_sent_evenly() -> None:
    gaps = take(arrivals.recorded([LoadRequest("GET", "/", at=3.0)], 0, 1), 4)
    assert list(gaps) == [0.0, 1.0, 1.0, 1.0]


def test_stream_has_the_times_of_its_tokens_and_the_servers_count() -> None:
    tokens = TokenStream()
    lines = [
        b'data: {"choices":[{"delta":{"role":"assistant"}}]}',
        b": a comment",
        b'data: {"choices":[{"delta":{"content":"a"}}]}',
        b'data: {"choices":[{"text":"b"}]}',
        b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":9}}',
        b"data: [DONE]",
    ]
    for number, line in enumerate(lines):
        tokens.read(line + b"\n", float(number))
    assert tokens.moments == [2.0, 3.0]
    assert tokens.gaps() == [1.0]
    assert (tokens.count, tokens.prompt_tokens, tokens.finished, tokens.error) == (9, 4, True, "")


@pytest.mark.parametrize(
    "delta",
    [
        b'{"reasoning": "a"}',
        b'{"reasoning_content": "a"}',
        b'{"content": null, "tool_calls": [{"index": 0, "function": {"name": "f"}}]}',
    ],
)
def test_reasoning_and_tool_calls_are_tokens_of_a_stream(delta: bytes) -> None:
    tokens = TokenStream()
    tokens.read(b'data: {"choices":[{"delta":%s}]}' % delta, 1.0)
    assert tokens.moments == [1.0]


@pytest.mark.parametrize("count", [-1, 2**32])
def test_usage_is_ignored_when_it_is_no_count(count: int) -> None:
    log, tokens = LatencyLog(), TokenStream()
    usage = b'{"prompt_tokens":%d,"completion_tokens":%d}' % (count, count)
    tokens.read(b'data: {"choices":[{"text":"a"}],"usage":%s}' % usage, 1.0)
    log.ends(
        log.begins(0.0, stream=True),
        done=2.0,
        behind=0.0,
        error="",
        tokens=tokens.count,
        prompt_tokens=tokens.prompt_tokens,
    )
    ((_, records),) = wire.frames(bytearray(log.take()))
    (row,) = np.frombuffer(records, dtype=np.dtype(list(wire.FIELDS)))
    assert (row["tokens"], row["prompt_tokens"]) == (1, 0)


@pytest.mark.parametrize("line", [b"data: {", b'data: {"error": {"message": "no"}}', b"data: 3"])
def test_stream_fails_on_an_invalid_chunk(line: bytes) -> None:
    tokens = TokenStream()
    tokens.read(line, 0.0)
    assert tokens.error


@given(st.binary(max_size=200))
def test_no_line_of_a_stream_raises(line: bytes) -> None:
    TokenStream().read(b"data: " + line, 0.0)


@pytest.mark.parametrize(
    "content", [b"[]", b'"x"', b'{"choices": 3}', b'{"choices": [3]}', b'{"choices":[{"delta": 3}]}']
)
def test_chunk_of_another_shape_has_no_tokens(content: bytes) -> None:
    tokens = TokenStream()
    tokens.read(b"data: " + content, 0.0)
    assert tokens.count == 0


def test_records_are_taken_once_and_follow_their_error_texts() -> None:
    log = LatencyLog()
    log.ends(log.begins(1.0), done=2.0, behind=0.0, error="")
    log.ends(log.begins(1.5), done=3.0, behind=0.1, error="status 500", gaps=[0.5])
    log.begins(4.0)
    frames = list(wire.frames(bytearray(log.take())))
    assert [kind for kind, _ in frames] == [wire.ERROR, wire.TOKEN_GAPS, wire.RECORDS]
    rows = np.frombuffer(frames[2][1], dtype=np.dtype(list(wire.FIELDS)))
    assert rows.dtype.itemsize == wire.RECORD.size
    assert list(rows["done"]) == [2.0, 3.0]
    assert list(rows["error"]) == [0, 1]
    assert list(log.unanswered.values()) == [4.0]
    assert log.take() == b""


def test_record_has_the_tokens_of_prompt_and_answer() -> None:
    log = LatencyLog()
    log.ends(log.begins(1.0), done=2.0, behind=0.0, error="", tokens=9, prompt_tokens=2**32 - 1)
    ((_, records),) = wire.frames(bytearray(log.take()))
    (row,) = np.frombuffer(records, dtype=np.dtype(list(wire.FIELDS)))
    assert (row["tokens"], row["prompt_tokens"], row["error"]) == (9, 2**32 - 1, 0)


def test_error_text_is_recorded_when_utf8_cannot_encode_it() -> None:
    log = LatencyLog()
    for error in ("half of a \ud83d", "half of a \ude00", "status 500"):
        log.record(0.0, 1.0, error)
    frames = list(wire.frames(bytearray(log.take())))
    assert [content for kind, content in frames if kind == wire.ERROR] == [b"half of a ?", b"status 500"]
    rows = np.frombuffer(frames[-1][1], dtype=np.dtype(list(wire.FIELDS)))
    assert list(rows["error"]) == [1, 1, 2]


def test_stream_is_silent_until_its_first_token_or_its_end() -> None:
    log = LatencyLog()
    log.begins(1.0)
    first, second, third = (log.begins(moment, stream=True) for moment in (2.0, 3.0, 4.0))
    assert list(log.silent.values()) == [2.0, 3.0, 4.0]
    tokens = TokenStream(lambda: log.speaks(first))
    for line in (b'data: {"choices":[{"delta":{"role":"assistant"}}]}', b'data: {"choices":[{"text":"a"}]}'):
        assert first in log.silent
        tokens.read(line, 5.0)
    log.ends(second, done=6.0, behind=0.0, error="the stream broke off")
    assert list(log.silent) == [third]
    tokens.read(b'data: {"choices":[{"text":"b"}]}', 7.0)
    log.ends(first, done=8.0, behind=0.0, error="")
    assert list(log.unanswered.values()) == [1.0, 4.0]


def test_log_keeps_few_texts_when_errors_vary() -> None:
    log = LatencyLog()
    for number in range(1000):
        log.record(0.0, 1.0, f"error {number} " + "x" * 10_000)
    frames = list(wire.frames(bytearray(log.take())))
    texts = [content for kind, content in frames if kind == wire.ERROR]
    assert len(texts) == 65
    assert texts[-1] == b"other errors"
    assert max(len(text) for text in texts) <= 200


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 20))
def test_frames_are_complete_when_received_in_pieces(contents: list[bytes], piece: int) -> None:
    sent = b"".join(wire.frame(wire.REPLY, content) for content in contents)
    buffer, received = bytearray(), []
    for start in range(0, len(sent), piece):
        buffer += sent[start : start + piece]
        received += [content for _, content in wire.frames(buffer)]
    assert received == contents
    assert not buffer


def test_plan_line_preserves_requests() -> None:
    request = LoadRequest("POST", "/x", {"a": "b"}, bytes(range(256)), at=1.5, stream=True)
    line = wire.plan_line(
        LoadPlan("open", (request,), 3),
        url="http://x",
        number=0,
        processes=1,
        timeout=1.0,
        most_unanswered=5,
    )
    assert wire.read_requests(json.loads(line)) == [request]
