"""Numbers as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.report_pages import formatting

FINITE = st.floats(-1e300, 1e300)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.012345, "0.0123"), (12.345, "12.3"), (1.0, "1"), (0.999999, "1"), (99.96, "100"),
     (1234.5, "1,234"), (-2.5, "-2.5"), (1_234_567, "1,234,567"), (0.00001234, "1.23e-05"),
     (3e20, "3.00e+20"), (100.0, "100")],
)  # fmt: skip
def test_number_has_three_digits(value: float, text: str):
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0123, "12.3 ms"), (0.000085, "85 µs"), (1.234, "1.23 s"), (0.9999, "1 s"),
     (59.99, "1 min"), (59.4, "59.4 s"), (60, "1 min"), (75, "1 min 15 s"), (3600, "1 h"),
     (7530, "2 h 5 min"), (86_400, "24 h")],
)  # fmt: skip
def test_duration_has_the_unit_that_suits_it(seconds: float, text: str):
    assert plain(formatting.duration(seconds)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (2**29, "512 MiB"), (1.5 * 2**30, "1.5 GiB")]
)
def test_size_has_the_unit_that_suits_it(count: float, text: str):
    assert plain(formatting.size(count)) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.4321, "43.2 %"), (0.0123, "1.2 %"), (1, "100 %"), (0.0999, "10 %")]
)
def test_percent_has_few_digits(share: float, text: str):
    assert plain(formatting.percent(share)) == text


@pytest.mark.parametrize("share", [1e-20, 1e-18, -1e-9])
def test_a_negligible_share_is_zero(share: float):
    assert plain(formatting.percent(share)) == "0 %"


def test_counts_are_singular_for_one_only():
    assert [formatting.count(n, "trial") for n in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]


def test_lists_have_an_and_before_the_last():
    assert [formatting.listed(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


@given(FINITE)
def test_number_is_within_a_rounding_of_the_value(value: float):
    parsed = float(formatting.number(value).replace(",", ""))
    assert math.isclose(parsed, value, rel_tol=0.006, abs_tol=1e-300)


@given(st.floats())
def test_no_number_is_written_as_nan_or_infinite(value: float):
    for write in (formatting.number, formatting.duration, formatting.size, formatting.percent):
        assert not {"nan", "inf"} & set(write(value).lower().split())
        assert "nan" not in write(value).lower()
        assert "inf" not in write(value).lower()


def test_moments_are_written_in_utc():
    assert formatting.moment("2026-11-22T05:30:00+02:00") == "22 November 2026, 03:30 UTC"
