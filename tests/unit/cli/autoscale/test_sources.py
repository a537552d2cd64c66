"""Load from files and from Prometheus, and the errors of unreadable load."""

import base64
import gzip
import json
import math
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from autoscaler.simulate.workloads.traces import BinTrace
from serving import errors
from serving.cli.autoscale import sources
from serving.cli.autoscale.sources import MAX_POINTS, LoadSource

START, STEP = 1_700_000_040, 60


class Prometheus(HTTPServer):
    """Answers ranges with two series that add up to the minute's number, but for one minute that has none."""

    queries: list[dict[str, str]]
    authorizations: list[str]
    refusal = ""
    answer: Any = None
    """An answer in place of the series."""


class Handler(BaseHTTPRequestHandler):
    server: Prometheus

    def do_GET(self) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        self.server.queries.append(query)
        self.server.authorizations.append(self.headers.get("Authorization", ""))
        first, last = float(query["start"]), float(query["end"])
        moments = [first + STEP * i for i in range(int((last - first) / STEP) + 1)]
        numbers = [(moment, (moment - START) / STEP) for moment in moments if moment != START + 3 * STEP]
        series = [{"metric": {}, "values": [[moment, str(n / 2)] for moment, n in numbers]}] * 2
        body: dict[str, Any] = {"status": "success", "data": {"resultType": "matrix", "result": series}}
        if self.server.refusal:
            body = {"status": "error", "errorType": "bad_data", "error": self.server.refusal}
        if self.server.answer is not None:
            body = self.server.answer
        self.send_response(400 if self.server.refusal else 200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    server = Prometheus(("127.0.0.1", 0), Handler)
    server.queries, server.authorizations = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def source(server: Prometheus, last: int, query: str = "sum(x)") -> LoadSource:
    return LoadSource(
        None, f"http://127.0.0.1:{server.server_port}", query, str(START), str(START + last * STEP), "1m"
    )


def test_series_of_a_range_are_added_and_gaps_are_zero(prometheus: Prometheus) -> None:
    trace = sources.read(source(prometheus, 5))
    assert isinstance(trace, BinTrace)
    assert (trace.start, trace.step) == (START, STEP)
    assert trace.rates.tolist() == [0, 1, 2, 0, 4, 5]


def test_a_long_range_is_queried_in_parts_without_overlap(prometheus: Prometheus) -> None:
    trace = sources.read(source(prometheus, MAX_POINTS + 9))
    assert isinstance(trace, BinTrace)
    assert trace.rates[-1] == MAX_POINTS + 9
    assert len(prometheus.queries) == 2
    assert float(prometheus.queries[1]["start"]) == float(prometheus.queries[0]["end"]) + STEP


def test_an_error_of_prometheus_is_reported_with_its_message(prometheus: Prometheus) -> None:
    prometheus.refusal = "parse error: unexpected )"
    with pytest.raises(errors.UserError) as caught:
        sources.read(source(prometheus, 5))
    server = f"http://127.0.0.1:{prometheus.server_port}"
    assert (
        str(caught.value) == f"--query 'sum(x)': {server}: the query was refused: parse error: unexpected )"
    )


@pytest.mark.parametrize("answer", [[], "ok", 1, {"status": "success", "data": [1]}, {"status": "success"}])
def test_an_answer_is_refused_when_it_is_not_of_a_prometheus(answer: Any, prometheus: Prometheus) -> None:
    prometheus.answer = answer
    with pytest.raises(
        errors.UserError, match=r"--prometheus http.*: the answer is not in Prometheus's form"
    ):
        sources.read(source(prometheus, 5))


def test_an_answer_is_refused_when_it_is_longer_than_the_limit(
    prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 1000)
    with pytest.raises(errors.UserError, match="an answer of more than 1000 bytes"):
        sources.read(source(prometheus, 500))


def test_a_negative_value_counts_as_a_missing_one(prometheus: Prometheus) -> None:
    values = [[START, "2"], [START + STEP, "-1"], [START + 2 * STEP, "3"]]
    series = [{"metric": {}, "values": values}]
    prometheus.answer = {"status": "success", "data": {"resultType": "matrix", "result": series * 2}}
    trace = sources.read(source(prometheus, 5))
    assert isinstance(trace, BinTrace)
    assert trace.rates.tolist() == [4, 0, 6]


def test_values_of_all_steps_are_read_when_a_step_is_a_part_of_a_second(prometheus: Prometheus) -> None:
    first = math.ceil(START / 0.7) * 0.7
    asked = replace(source(prometheus, 5), end=f"{first + 3.6:.1f}", step="0.7s")
    values = [[round(first + i * 0.7, 3), str(i)] for i in range(6)]
    series = [{"metric": {}, "values": values}]
    prometheus.answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    trace = sources.read(asked)
    assert isinstance(trace, BinTrace)
    assert trace.rates.tolist() == [0, 1, 2, 3, 4, 5]


def test_an_unreachable_prometheus_is_reported() -> None:
    with pytest.raises(errors.UserError, match=r"--prometheus http://127\.0\.0\.1:9: .*Cannot connect"):
        sources.read(LoadSource(None, "http://127.0.0.1:9", "x", "2h"))


def test_a_prometheus_is_asked_through_the_proxy_of_the_environment(
    prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{prometheus.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    sources.read(replace(source(prometheus, 5), prometheus="http://prometheus.invalid"))
    assert len(prometheus.queries) == 1


def test_credentials_of_a_prometheus_are_sent_in_a_header_and_never_printed(prometheus: Prometheus) -> None:
    url = f"http://us%40er:secret@127.0.0.1:{prometheus.server_port}"
    asked = replace(source(prometheus, 5), prometheus=url)
    sources.read(asked)
    assert base64.b64decode(prometheus.authorizations[0].removeprefix("Basic ")) == b"us@er:secret"
    prometheus.refusal = "parse error"
    with pytest.raises(errors.UserError, match="parse error") as caught:
        sources.read(asked)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["http://user:secret@h:port", "user:secret@h", "http://user:secret@a..b"])
def test_an_invalid_address_of_a_prometheus_is_refused_without_its_credentials(address: str) -> None:
    with pytest.raises(errors.UserError) as caught:
        sources.read(LoadSource(None, address, "x", "2h"))
    assert "secret" not in str(caught.value)


def test_a_missing_query_is_refused() -> None:
    with pytest.raises(errors.UserError, match="needs --query"):
        sources.read(LoadSource(None, "http://127.0.0.1:9"))


@pytest.mark.parametrize("chosen", [LoadSource(None), LoadSource(Path("x.csv"), "http://127.0.0.1:9", "x")])
def test_load_without_exactly_one_source_is_refused(chosen: LoadSource) -> None:
    with pytest.raises(errors.UserError, match="say where the load is"):
        sources.read(chosen)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("missing.csv", None, "cannot read .*missing.csv: No such file"),
        ("x.csv", b"second,requests\n0,1\n1,many\n", "x.csv: row 3, column requests: 'many' is no number"),
        ("x.csv", b"second,requests\n0,1\n1\n", "x.csv: row 3 has 1 values for 2 columns"),
        (
            "x.csv",
            b"where,requests\nhere,1\nthere,2\n",
            "x.csv: no column says when; there are where, requests",
        ),
        (
            "x.csv",
            gzip.compress(b"second,requests\n", mtime=0),
            "not UTF-8 text; the name of a gzip file must end in .gz",
        ),
        ("x.csv.gz", b"second,requests\n", "cannot read .*x.csv.gz"),
        ("x.csv.gz", gzip.compress(b"second,requests\n0,1\n", mtime=0)[:-9], "cannot read .*x.csv.gz"),
    ],
)
def test_an_invalid_trace_is_refused_with_the_position(
    tmp_path: Path, name: str, data: bytes | None, words: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.UserError, match=words):
        sources.read(LoadSource(tmp_path / name))


@pytest.mark.parametrize(
    ("words", "number"), [("30s", 30), ("1.5m", 90), ("2h", 7200), ("1d", 86_400), ("45", 45)]
)
def test_durations_have_units(words: str, number: float) -> None:
    assert sources.seconds(words, "--x") == number


@pytest.mark.parametrize("words", ["", "soon", "-1s", "1y", "1h30m"])
def test_an_invalid_duration_is_refused_with_its_option(words: str) -> None:
    with pytest.raises(errors.UserError, match=r"--x .* is not a duration"):
        sources.seconds(words, "--x")
