"""What earlier experiments of similar services say of this space, before and beside what is measured of it."""

from dataclasses import dataclass

from tuner.search.problem import Floats


@dataclass(frozen=True)
class TransferPrior:
    """Of each of the n specs, as far as they are believed."""

    objective: Floats
    """Log objective, up to a constant."""
    margins: tuple[Floats, ...]
    """Log margin of each constraint, by this problem's bounds."""
    boots: Floats
    """From -1, never, to 1, always."""
    scale: float
    """How far, typically, a service is from what the others say of it, in log objective."""
    margin_scale: float
    """The same of the margins."""
    weights: tuple[tuple[str, float], ...]
    """Each earlier experiment with its share; they add up to how much all of them are believed, at most 1."""
