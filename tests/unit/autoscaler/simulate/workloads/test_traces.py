import numpy as np
import pytest

from autoscaler.simulate.workloads.traces import (
    FIRST_DAY,
    BinTrace,
    ClientTrace,
    RequestTrace,
    UnreadableTrace,
    parse,
)


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def test_requests_are_sorted_and_counted_from_the_first() -> None:
    trace = parse("x", lines("t_s,input_tokens,output_tokens", "7.5,30,3", "4,10,1"))
    assert isinstance(trace, RequestTrace)
    assert trace.times.tolist() == [0, 3.5]
    assert trace.inputs is not None
    assert trace.inputs.tolist() == [10, 30]
    assert trace.start == FIRST_DAY + 4


def test_gpu_seconds_make_requests_even_beside_a_count() -> None:
    trace = parse("x", lines("arrival_time,value,exec_time_s", "0,1,35.5", "60,1,12"))
    assert isinstance(trace, RequestTrace)
    assert trace.execution is not None
    assert trace.execution.tolist() == [35.5, 12]


def test_iso_times_of_requests_are_utc_when_they_name_no_zone() -> None:
    trace = parse("x", lines("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,1,2"))
    assert isinstance(trace, RequestTrace)
    assert trace.start == pytest.approx(1_700_158_623.97996)


def test_counts_become_rates_by_the_unit_of_their_column() -> None:
    trace = parse("x", lines("minute,requests", "10,60", "11,120"))
    assert isinstance(trace, BinTrace)
    assert trace.step == 60
    assert trace.rates.tolist() == [1, 2]
    assert trace.start == FIRST_DAY + 600


@pytest.mark.parametrize("header", ["second,requests", "t_s,count", "timestamp,value"])
def test_count_columns_have_many_names(header: str) -> None:
    trace = parse("x", lines(header, "0,4", "1,6"))
    assert isinstance(trace, BinTrace)
    assert (trace.step, trace.rates.tolist()) == (1, [4, 6])


def test_bins_of_iso_times_have_the_spacing_of_most() -> None:
    rows = [f"2014-04-10 00:{minute:02}:00,300" for minute in (4, 9, 14, 19, 29)]
    trace = parse("x", lines("timestamp,value", *rows))
    assert isinstance(trace, BinTrace)
    assert trace.step == 300
    assert len(trace.rates) == 6


def test_lost_bin_is_interpolated() -> None:
    trace = parse(
        "x", lines("minute,requests", *(f"{minute},{60 * minute}" for minute in range(9) if minute != 4))
    )
    assert isinstance(trace, BinTrace)
    assert trace.rates.tolist() == pytest.approx(range(9))


def test_bins_had_no_requests_where_only_those_with_some_are_listed() -> None:
    trace = parse("x", lines("second,requests", "0,5", "1,5", "2,5", "9,5"))
    assert isinstance(trace, BinTrace)
    assert trace.rates.tolist() == [5, 5, 5, 0, 0, 0, 0, 0, 0, 5]


def test_rates_are_unchanged() -> None:
    trace = parse("x", lines("window_start_s,rate_rps,mean_input_tokens", "0,2.5,9", "600,3.5,9"))
    assert isinstance(trace, BinTrace)
    assert (trace.step, trace.rates.tolist()) == (600, [2.5, 3.5])


@pytest.mark.parametrize("zeros", ["000", "000000", "000000000"])
def test_unix_times_in_a_unit_below_seconds_are_recognised(zeros: str) -> None:
    trace = parse("x", lines("timestamp,count", f"1700000000{zeros},1", f"1700000001{zeros},2"))
    assert isinstance(trace, BinTrace)
    assert (trace.start, trace.step) == (1_700_000_000, 1)


def test_clients_have_their_windows_and_laws() -> None:
    text = lines(
        "client,window_start_s,rate_rps,iat_cv,iat_dist,iat_shape",
        "a,0,0.5,2,W,0.4",
        "a,1200,0.1,1,G,1.1",
        "b,600,1,1,G,2",
    )
    trace = parse("x", text)
    assert isinstance(trace, ClientTrace)
    assert trace.seconds == 1800
    assert [(law.start, law.family, law.shape) for law in trace.clients["a"]] == [
        (0, "W", 0.4),
        (1200, "G", 1.1),
    ]
    assert trace.clients["b"][0].seconds == 600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "x.csv: the file is empty"),
        ("minute,requests\n", "x.csv: there are no rows"),
        ("a,b\n1,2\n", "x.csv: no column says when; there are a, b"),
        ("minute,requests\n1,2\n2,x\n", "x.csv: row 3, column requests: 'x' is no number"),
        ("minute,requests\n1,2\n2,-1\n", "x.csv: row 3, column requests: '-1' is no count"),
        ("minute,requests\n1,2\n2,nan\n", "row 3, column requests"),
        ("minute,requests\n\n1,2\n2,x\n", "x.csv: row 4, column requests: 'x' is no number"),
        ("t_s,count\n1,1\n2,1\n3,1\n1e10,1\n", "x.csv: a bin lasts 1 s and there are 10000000000"),
        ("hour,requests\n1,1\n1e307,1\n", "x.csv: column hour: a time is too large"),
        ("t_s\n1\n1e12\n", "x.csv: row 3, column t_s: '1e12' is a time after the year 5000"),
        ("t_s\n1e22\n2e22\n", "x.csv: row 3, column t_s: '2e22' is a time after the year 5000"),
        ('minute,requests\n1,2\n2,"3' + "\n4,5" * 50_000, "x.csv: row .*: field larger than field limit"),
        ('"' + "minute" * 50_000, "x.csv: row 1: field larger than field limit"),
        ("minute,requests\n1,2\n2\n", "x.csv: row 3 has 1 values for 2 columns"),
        ("timestamp,value\n2014-01-01,2\nnoon,3\n", "x.csv: row 3, column timestamp: 'noon' is no ISO time"),
        ("minute,requests\n1,2\n1,2\n", "x.csv: all rows are of the same moment"),
        (
            "client,window_start_s,rate_rps,iat_dist,iat_shape\na,0,1,X,1\na,600,1,G,1\n",
            "x.csv: row 2: iat_dist 'X'",
        ),
    ],
)
def test_unreadable_value_is_reported_with_file_row_and_column(text: str, says: str) -> None:
    with pytest.raises(UnreadableTrace, match=says):
        parse("x.csv", text)


def test_no_rate_is_lost_when_rows_are_out_of_order() -> None:
    rows = [f"{minute},{minute + 1}" for minute in np.random.default_rng(1).permutation(50)]
    trace = parse("x", lines("minute,requests", *rows))
    assert isinstance(trace, BinTrace)
    assert (trace.rates * 60).tolist() == pytest.approx(range(1, 51))


def test_numbers_in_scientific_notation_are_no_dates() -> None:
    trace = parse("x", "t_s,count\n5e-01,1\n1.5e+00,1\n2.5e+00,1\n")
    assert isinstance(trace, BinTrace)
    assert (trace.step, trace.rates.tolist()) == (1.0, [1.0, 1.0, 1.0])
