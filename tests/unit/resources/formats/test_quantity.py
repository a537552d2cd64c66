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


@given(st.integers(0, 10**9))
def test_milli_is_a_thousandth_for_every_number(number: int) -> None:
    assert quantity.parse(f"{number}m") * 1000 == quantity.parse(str(number))
