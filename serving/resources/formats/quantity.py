"""Kubernetes quantities as exact numbers: k8s.io/apimachinery/pkg/api/resource/quantity.go."""

import re
from decimal import Decimal

_SUFFIX = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_HIGHEST_EXPONENT = 30
"""Largest power of ten of a quantity, and of its inverse. Kubernetes' quantities are between a billionth and
2^63, and whoever makes an integer of 1e99999999 is busy for minutes."""


def parse(text: str | float) -> Decimal:
    """Return the quantity's value: `500m` is 0.5, `1Ki` is 1024, `1e3` is 1000.

    Raises:
        ValueError: not a quantity, or one that is not between 1e-30 and 1e31.
    """
    match = _FORM.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 2 or 512Mi")
    number, exponent, suffix = match.groups()
    refusal = f"{text!r} is too large or too small for a quantity: it is not between 1e-30 and 1e31"
    try:
        value = Decimal(number + exponent) if exponent else Decimal(number) * _SUFFIX[suffix or ""]
    except ArithmeticError as error:  # an exponent beyond that of Decimal
        raise ValueError(refusal) from error
    if abs(value.adjusted()) > _HIGHEST_EXPONENT:
        raise ValueError(refusal)
    return value
