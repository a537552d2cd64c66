"""Who else writes the count of a target: that is said, and not fought. Pure."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from serving.resources.conditions import Condition

WINDOW_SECONDS = 600.0
"""In which changes by somebody else are counted, and for which the count is left to them."""
RESPECT_SECONDS = 600.0
"""For so long a count that somebody else has raised is not lowered, and twice as long each time that it is
raised again: a second controller has seen more, or a person knows more, and two that take turns would never
end."""
MOST_TIMES = 3
"""That the time is doubled: somewhat over an hour."""
MOST = 3
"""Changes within the window: a person who scales by hand once or twice is answered by the bounds and the load."""


class Raised(NamedTuple):
    """A count that somebody else has raised."""

    replicas: int = 0
    at: float = -math.inf
    """Seconds on a clock that nobody sets."""
    times: int = 0
    """In a row."""

    @property
    def until(self) -> float:
        """Return the moment until which it is not lowered."""
        return self.at + RESPECT_SECONDS * 2.0 ** min(self.times - 1, MOST_TIMES)

    def again(self, replicas: int, now: float) -> "Raised":
        """Return what is known once it is raised to `replicas`."""
        lasting = now - self.at <= 2 * (self.until - self.at) if self.times else False
        return Raised(replicas, now, self.times + 1 if lasting else 1)


def count(theirs: list[float], now: float) -> None:
    """Take a change by somebody else."""
    theirs.append(now)
    del theirs[:-MOST]


def wrote(target: Mapping[str, Any], manager: str) -> bool:
    """Whether the count of a target was written under this manager's name, so by a controller as this one."""
    return any(
        entry.get("manager") == manager
        and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in target["metadata"].get("managedFields") or []
    )


def is_fought(theirs: list[float], now: float) -> bool:
    """Whether somebody else scales the same target."""
    return len(theirs) >= MOST and now - theirs[-MOST] <= WINDOW_SECONDS


MESSAGE_LENGTH = 1024
"""Characters: of a page that a proxy answered in the API's place, the beginning says enough."""
REFUSED_SECONDS = 15.0
"""For which the scale subresource must refuse before the status says so: a conflict or a restart of the API
is shorter."""
OBSERVE = "Observe"
"""Reason of `ScalingActive` where decisions are only said."""


def condition(mode: str, scaler: str, *, is_fought: bool) -> Condition:
    """Return the condition `ScalingActive`.

    Args:
        mode: `spec.prediction.mode`.
        scaler: a HorizontalPodAutoscaler of the same target.
        is_fought: whether somebody else scales it.
    """
    if scaler:
        words = f"HorizontalPodAutoscaler {scaler} scales the same target: the count is left to it"
        return Condition("ScalingActive", "False", "AnotherScaler", words)
    if is_fought:
        words = (
            f"somebody else has changed the count {MOST} times within {WINDOW_SECONDS / 60:.0f} minutes:"
            " it is left to them"
        )
        return Condition("ScalingActive", "False", "AnotherScaler", words)
    if mode == OBSERVE:
        return Condition("ScalingActive", "False", OBSERVE, "what would be done is said, and not done")
    return Condition("ScalingActive", "True", "Scaling", "the count follows the decisions")


def refused(replicas: int, error: Exception) -> Condition:
    """Return the condition `ScalingActive` while the scale subresource does not take the count."""
    message = f"the scale subresource has not taken {replicas} replicas: {error}"[:MESSAGE_LENGTH]
    return Condition("ScalingActive", "False", "ScaleRefused", message)
