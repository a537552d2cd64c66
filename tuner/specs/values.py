"""The values of a parameter in the user's notation: exact numbers, quantities and durations."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from serving.errors import SpaceInvalid
from serving.resources.formats import duration, quantity
from serving.resources.tuning.experiment import FeasibleSpace

POINTS = 100_000
"""Most specs of a space: a search can score this number between two trials."""
_LARGEST = Decimal("1e21")
_SMALLEST = Decimal("1e-18")
_DIGITS = 15
"""Significant digits of a float: the search uses floats, and two values must not become equal."""
_SHOWN = 6
"""Significant digits of the powers of a factor, as the tenth power of 1.1 has 11; the whole part of a power
keeps all digits."""
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_LARGE = ("E", "P", "T", "G", "M", "k")
_SMALL = ("m", "u", "n")


Reader = Callable[[str], Decimal]
"""Reads one text; raises ValueError."""


@dataclass(frozen=True)
class Value:
    """One value of an ordered parameter."""

    text: str
    amount: Decimal
    """In natural units: cores, bytes, percent, seconds, or the number itself."""


def listed(field: str, texts: list[str], read: Reader) -> list[Value]:
    """Return the values of a list, ascending.

    Raises:
        SpaceInvalid: a value cannot be read.
    """
    amounts = [Value(text, _read(f"{field}.list[{i}]", text, read)) for i, text in enumerate(texts)]
    return sorted(amounts, key=lambda value: value.amount)


def ranged(field: str, space: FeasibleSpace, grain: Decimal | None) -> list[Value]:
    """Return the values of a range by steps or powers, ascending.

    `max` is included if a step or power meets it.

    Args:
        field: path of `space`, for messages.
        space: with `min`, `max` and one of `step` and `factor`.
        grain: powers between the ends are rounded to whole multiples of it.

    Raises:
        SpaceInvalid: an end is missing or cannot be read, or the range is empty, endless or too long.
    """
    if space.min is None or space.max is None or (space.step is None) == (space.factor is None):
        raise SpaceInvalid(field, "give either list, or min and max with one of step and factor")
    low = _read(f"{field}.min", space.min, number)
    high = _read(f"{field}.max", space.max, number)
    if low > high:
        raise SpaceInvalid(f"{field}.max", f"{space.max} is less than min, {space.min}: there is no value")
    if space.step is not None:
        amounts = _steps(f"{field}.step", low, high, space.step)
    else:
        amounts = _powers(f"{field}.factor", low, high, str(space.factor), grain)
    suffix = _suffixes(space.min, space.max, space.step or "")
    ends = {high: space.max, low: space.min}
    return [Value(ends.get(amount) or _written(amount, suffix), amount) for amount in amounts]


def _read(field: str, text: str, read: Reader) -> Decimal:
    try:
        amount = read(text)
    except ValueError as error:
        raise SpaceInvalid(field, str(error)) from error
    if amount and not _SMALLEST <= amount.copy_abs() <= _LARGEST:  # abs() rounds, and can overflow
        raise SpaceInvalid(field, f"{text} is not between {_SMALLEST} and {_LARGEST}")
    if len(amount.normalize().as_tuple().digits) > _DIGITS:
        raise SpaceInvalid(field, f"{text} has more than {_DIGITS} significant digits")
    return amount


def number(text: str) -> Decimal:
    """Read a number or quantity. Raises ValueError."""
    if text != text.strip():
        raise ValueError(f"{text!r} has spaces around it")
    return quantity.parse(text)


def span(text: str) -> Decimal:
    """Read a duration, in seconds. Raises ValueError."""
    return duration.exact(text)


def _steps(field: str, low: Decimal, high: Decimal, text: str) -> list[Decimal]:
    step = _read(field, text, number)
    if step <= 0:
        raise SpaceInvalid(field, f"must be greater than 0, and is {text}")
    if (high - low) / step >= POINTS:
        raise SpaceInvalid(field, f"{text} makes more than {POINTS:,} values of the range")
    return [low + step * i for i in range(int((high - low) // step) + 1)]


def _powers(field: str, low: Decimal, high: Decimal, text: str, grain: Decimal | None) -> list[Decimal]:
    factor = _read(field, text, number)
    if factor <= 1:
        raise SpaceInvalid(field, f"must be greater than 1, and is {text}")
    if low <= 0:
        raise SpaceInvalid(field, f"needs a min greater than 0, and it is {low:f}")
    if math.log(high / low) / math.log(factor) >= POINTS:
        raise SpaceInvalid(field, f"{text} makes more than {POINTS:,} values of the range")
    amounts: list[Decimal] = []
    exact = low
    while exact <= high:
        # The ends are the user's: a rounded min could lie below it.
        rounded = exact if exact in (low, high) else min(_rounded(exact, grain), high)
        if not amounts or rounded > amounts[-1]:
            amounts.append(rounded)
        exact *= factor
    return amounts


def _rounded(amount: Decimal, grain: Decimal | None) -> Decimal:
    """Return the nearest multiple of the grain; without a grain, the amount in _SHOWN significant digits."""
    if grain is not None:
        return (amount / grain).to_integral_value() * grain
    exponent_of_last_digit = min(0, amount.adjusted() - _SHOWN + 1)
    return amount.quantize(Decimal(1).scaleb(exponent_of_last_digit))


def _suffixes(*texts: str) -> tuple[str, ...]:
    """Return the suffixes of the user's notation, largest first."""
    if any(text.endswith("i") for text in texts):
        return _BINARY
    used = {text[-1:] for text in texts}
    return (_LARGE if used & set(_LARGE) else ()) + (_SMALL if used & set(_SMALL) else ())


def _written(amount: Decimal, suffixes: tuple[str, ...]) -> str:
    """Return an amount as Kubernetes writes it: with the largest suffix that leaves a whole number."""
    is_integer = amount == amount.to_integral_value()
    for suffix in suffixes:
        if is_integer and suffix in _SMALL:
            break  # `2`, not `2000m`
        count = amount / quantity.parse(f"1{suffix}")
        if count == count.to_integral_value() and abs(count) >= 1:
            return f"{count.to_integral_value():f}{suffix}"
    return f"{amount.to_integral_value() if is_integer else amount.normalize():f}"
