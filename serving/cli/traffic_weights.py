"""The weights that `slipway traffic set` asks for: whole weights, or shares in percent. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from serving import errors
from serving.resources.traffic_split import HEAVIEST_WEIGHT

Amounts = Mapping[str, int] | Mapping[str, Fraction]
"""By arm: whole weights, or shares in percent."""
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%", re.ASCII)
"""A share in percent with at most four decimals."""


def parse(words: Sequence[str]) -> Amounts:
    """Return the amounts of `ARM=WEIGHT` or `ARM=SHARE%` words, by arm.

    Raises:
        errors.UserError: a word has another form, an arm is given twice, or weights and shares are mixed.
    """
    weights: dict[str, int] = {}
    shares: dict[str, Fraction] = {}
    for word in words:
        arm, _, amount = word.partition("=")
        if arm in weights or arm in shares:
            raise errors.UserError(f"arm {arm} is given twice")
        if arm and (share := _SHARE.fullmatch(amount)):
            shares[arm] = Fraction(share[1])
        elif arm and amount.isascii() and amount.isdigit():
            weights[arm] = _weight(arm, amount)
        else:
            raise errors.UserError(
                f"{word!r} is not ARM=WEIGHT with a whole weight of 0 or more, like stable=90, "
                "nor ARM=SHARE%, like stable=90%"
            )
    if weights and shares:
        raise errors.UserError("give either weights or shares in percent, not both")
    return weights or shares


def _weight(arm: str, digits: str) -> int:
    significant = digits.lstrip("0") or "0"
    # The length is compared first, as `int` refuses thousands of digits.
    if len(significant) > len(str(HEAVIEST_WEIGHT)) or int(significant) > HEAVIEST_WEIGHT:
        raise errors.UserError(
            f"trafficWeight of {arm} must be at most {HEAVIEST_WEIGHT}, got {significant[:40]}; "
            "weights are relative to their sum"
        )
    return int(significant)


def resolved(current: Mapping[str, int], amounts: Amounts) -> dict[str, int]:
    """Return the weights to write, by arm.

    Whole weights are written as they are. If shares are given, the other arms divide the rest in proportion
    to their current weights. If the given shares become whole weights beside these current weights, the other
    arms keep them; otherwise all weights may change. Without a rest, the other arms get 0.

    Args:
        current: the current weights of all arms.
        amounts: the weights or shares of some of these arms.

    Raises:
        errors.UserError: the shares are not 100 % in all, or there is no arm that can take the rest.
    """
    shares = {arm: amount for arm, amount in amounts.items() if isinstance(amount, Fraction)}
    if not shares:
        return {arm: int(amount) for arm, amount in amounts.items()}
    others = {arm: weight for arm, weight in current.items() if arm not in shares}
    rest, total = 100 - sum(shares.values()), sum(others.values())
    if rest < 0 or (rest and not others):
        raise errors.UserError(f"the shares are {float(100 - rest):g} % in all; they must be 100 %")
    if rest and not total:
        names = ", ".join(others)
        raise errors.UserError(f"the other arms ({names}) have weight 0: give shares of 100 % in all")
    shares |= {
        arm: rest * Fraction(weight, total) if total else Fraction(0) for arm, weight in others.items()
    }
    # With this weight of 1 %, the other arms get their current weights again.
    weight_of_percent = Fraction(total) / rest if rest else Fraction(1)
    weights = _whole(shares, weight_of_percent)
    return {arm: weight for arm, weight in weights.items() if arm in amounts or weight != current[arm]}


def _whole(shares: Mapping[str, Fraction], weight_of_percent: Fraction) -> dict[str, int]:
    """Return whole weights in the proportion of the shares, by arm.

    A share of 1 % becomes `weight_of_percent` if this gives whole weights that are not too heavy. Else it
    becomes the least whole number by which all weights are whole. Weights that are too heavy are scaled down
    and rounded; an arm with a share keeps a weight of at least 1.

    Args:
        shares: in percent, 100 in all.
        weight_of_percent: the preferred weight for 1 %.
    """
    exact = [share * weight_of_percent for share in shares.values()]
    if any(weight.denominator > 1 or weight > HEAVIEST_WEIGHT for weight in exact):
        weight_of_percent = Fraction(math.lcm(*(share.denominator for share in shares.values())))
    weight_of_percent = min(weight_of_percent, HEAVIEST_WEIGHT / max(shares.values()))
    return {arm: max(round(share * weight_of_percent), 1) if share else 0 for arm, share in shares.items()}
