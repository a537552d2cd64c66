"""Quantities are exact."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.resources.formats import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"),
        ("1", "1"),
        ("1Ki", "1024"),
        ("512Mi", str(512 * 2**20)),
        ("1e3", "1000"),
        ("1E", "1e18"),
        ("-2", "-2"),
        (".5", "0.5"),
        ("1.5Gi", str(Decimal("1.5") * 2**30)),
        ("100n", "1e-7"),
    ],
)
def test_quantity_has_its_value_when_well_formed(text: str, value: str) -> None:
    assert quantity.parse(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1kb", "0x10", "1.2.3", "NaN", "inf", "--1", "1Mi5"])
def test_quantity_is_refused_with_its_value_when_malformed(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(
    "text",
    ["1e99999999", "1e-99999999", "0e99999999", f"1e{10**19}", "1e31", "1e-31", "1" * 32, f"{10**20}Ei"],
)
def test_quantity_is_refused_when_its_exponent_is_large(text: str) -> None:
    with pytest.raises(ValueError, match="too large or too small"):
        quantity.parse(text)


@pytest.mark.parametrize("text", ["1e30", "1e-30", "9223372036854775807", "0.000", "-1000Ei"])
def test_quantity_is_read_when_its_exponent_is_within_the_bounds(text: str) -> None:
    assert int(quantity.parse(text)) < 10**31


def test_quantity_of_many_digits_is_refused_at_once_when_malformed() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.parse("1" * 1_000_000 + "x")


@given(st.integers(0, 10**9))
def test_milli_is_a_thousandth_for_every_number(number: int) -> None:
    assert quantity.parse(f"{number}m") * 1000 == quantity.parse(str(number))
