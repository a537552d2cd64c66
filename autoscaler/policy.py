"""How many replicas a target should have. Pure. For now a fixed count: the one it has, within the bounds."""

from typing import NamedTuple


class Decision(NamedTuple):
    """A replica count and why."""

    replicas: int
    reason: str


def decide(current: int, minimum: int, maximum: int) -> Decision:
    """Return the count nearest to `current` within [minimum, maximum]."""
    if current < minimum:
        return Decision(minimum, f"raised from {current} to minReplicas")
    if current > maximum:
        return Decision(maximum, f"lowered from {current} to maxReplicas")
    return Decision(current, "within bounds")
