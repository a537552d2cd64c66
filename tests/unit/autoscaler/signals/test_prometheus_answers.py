"""The values of any response to a range query."""

import math
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.signals import prometheus
from serving import errors
from serving.system.network import http_reading

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
START, END = 1000.0, 2000.0


def matrix(*series: object) -> object:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}}


def test_series_are_summed_and_invalid_rates_omitted() -> None:
    answer = matrix(
        {"metric": {}, "values": [[1000, "1"], [1300, "NaN"], [1600, "-3"], [1900, "+Inf"]]},
        {"metric": {}, "values": [[1000, "2.5"], [1300, "4"], [900, "7"], [2300, "7"]]},
    )
    assert prometheus.parse_range(answer, START, END) == {1000.0: 3.5, 1300.0: 4.0}


@given(JSON, st.booleans())
def test_any_response_has_values_of_the_span_or_is_refused(
    junk: object,
    is_result: bool,  # noqa: FBT001 - drawn
) -> None:
    try:
        values = prometheus.parse_range(matrix({"values": junk}, junk) if is_result else junk, START, END)
    except (errors.Unavailable, errors.Permanent):
        return
    assert all(START <= time <= END and 0 <= rate < math.inf for time, rate in values.items())


@pytest.mark.parametrize(
    ("kind", "error"),
    [("bad_data", errors.Permanent), ("execution", errors.Permanent), ("timeout", errors.Unavailable)],
)
def test_permanent_query_error_differs_from_a_busy_server(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="no such function"):
        prometheus.parse_range(
            {"status": "error", "errorType": kind, "error": "no such function"}, START, END
        )


@pytest.mark.parametrize(
    "server",
    [
        "http://alice:secret@127.0.0.1:9",
        "http://alice:secret@[broken",
        "http://alice:secret@host:99999",
        "http://alice:secret@:80",
        "http://alice:12#secret@host",
        "ftp://alice:secret@host",
        "http://alice:secret@a..b",
        "http://alice:secret\u0142@host",
    ],
)
async def test_message_has_no_credentials_when_the_address_has_them(server: str) -> None:
    async with http_reading.session() as session:
        with pytest.raises(errors.Unavailable) as caught:
            await prometheus.query_instant(session, server, "up")
    printed = "".join(traceback.format_exception(caught.value))
    for word in ("alice", "secret", "\u0142", "\\u0142"):
        assert word not in printed
