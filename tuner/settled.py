"""Whether a recommendation is settled, or rests on too few trials; status, report and command line say so."""

import math
from dataclasses import dataclass

UNSETTLED = 0.05
"""Expected regret, and probability that the next measurement breaks a constraint, above which a
recommendation is not settled. `benchmarks/search_quality.py` counts a spec within 5 % of the optimum as
found, and a search that has the budget stops at 1 % (`SearchSettings.regret`)."""
SUFFICIENT_SHARE = 0.2
"""Share of the specs after which a search has usually found one within 2 % of the optimum
(`benchmarks/search_quality.py`)."""
LEAST_MORE = 4
"""Fewest trials to add: two specs, each measured twice."""


@dataclass(frozen=True)
class Doubt:
    """Why a recommendation is not settled."""

    trials: int
    """Trials so far."""
    regret: float | None
    """The expected regret, a share of the optimum; None if it is within the bound."""
    breaks: float | None
    """Probability that the next measurement breaks a constraint; None if it is within the bound."""
    more: int
    """Trials to add; 0 once there were as many trials as specs."""


def why_unsettled(*, trials: int, specs: int, regret: float, probability: float | None) -> Doubt | None:
    """Return why a recommendation is not settled; None if it is.

    Args:
        trials: in total so far.
        specs: the size of the space.
        regret: expected of the recommended spec, as a share of the optimum.
        probability: that the next measurement of the recommended spec meets every constraint; None if it is
            unknown.
    """
    is_found = regret <= UNSETTLED
    is_kept = probability is None or probability >= 1 - UNSETTLED
    if is_found and is_kept:
        return None
    more = max(math.ceil(SUFFICIENT_SHARE * specs) - trials, LEAST_MORE)
    return Doubt(
        trials=trials,
        regret=None if is_found else regret,
        breaks=None if probability is None or is_kept else 1 - probability,
        more=max(min(more, specs - trials), 0),
    )
