"""Detects other writers of a target's count, to whom the controller leaves the count. Pure."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from serving.resources.kubernetes.conditions import Condition

WINDOW_SECONDS = 600.0
"""Seconds in which changes by other writers are counted. The count is left to another writer while its last
`MOST_CHANGES` changes are within this window."""
RESPECT_SECONDS = 600.0
"""Seconds for which a count that another writer raised is not lowered; each further raise doubles the time.
A second controller may have observed more, and a person may know more. Without doubling, two writers would
alternate every ten minutes."""
MOST_DOUBLINGS = 3
"""Doublings of `RESPECT_SECONDS`, to 80 minutes."""
MOST_CHANGES = 3
"""Changes within the window from which another writer counts as a scaler; a person scales by hand once or
twice."""


class Raised(NamedTuple):
    """A count that another writer raised."""

    replicas: int = 0
    at: float = -math.inf
    """Monotonic seconds."""
    times: int = 0
    """Consecutive raises."""

    @property
    def until(self) -> float:
        """The monotonic time until which the count is not lowered."""
        return self.at + RESPECT_SECONDS * 2.0 ** min(self.times - 1, MOST_DOUBLINGS)

    def after_raise(self, replicas: int, now: float) -> "Raised":
        """Return the state after another raise, to `replicas`."""
        # A raise is consecutive until twice the respected time has passed: the controller lowers the count
        # after that time at the earliest, and another writer that alternates with it raises the count again.
        is_consecutive = self.times > 0 and now - self.at <= 2 * (self.until - self.at)
        return Raised(replicas, now, self.times + 1 if is_consecutive else 1)


def add_change(changes: list[float], now: float) -> None:
    """Add the time of a change by another writer."""
    changes.append(now)
    del changes[:-MOST_CHANGES]


def is_own_write(target: Mapping[str, Any], manager: str) -> bool:
    """Whether the last writer of the count has this field manager: this controller or another instance."""
    return any(
        entry.get("manager") == manager
        and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in target["metadata"].get("managedFields") or []
    )


def is_contested(changes: list[float], now: float) -> bool:
    """Whether another writer scales the same target."""
    return len(changes) >= MOST_CHANGES and now - changes[-MOST_CHANGES] <= WINDOW_SECONDS


MESSAGE_LENGTH = 1024
"""Most characters of a message, as a proxy may answer with a whole page."""
REFUSED_SECONDS = 15.0
"""Seconds of refusals before the status reports them; a conflict or a restart of the API is shorter."""
OBSERVE = "Observe"
"""Mode, and reason of `ScalingActive`, in which decisions are only reported."""
UNMANAGED = "Unmanaged"
"""Reason of `ScalingActive`, and of decisions, where the count is another autoscaler's."""


def condition(
    mode: str,
    scaler: str,
    *,
    is_contested: bool,
    is_managed: bool = True,
    own_scaler: str = "",
    has_other_count: bool = False,
) -> Condition:
    """Return the condition `ScalingActive`.

    Args:
        mode: `spec.prediction.mode`.
        scaler: name of a HorizontalPodAutoscaler of the same target; empty: none.
        is_contested: whether another writer scales the target, by the function `is_contested`.
        is_managed: `spec.managed`.
        own_scaler: name of a HorizontalPodAutoscaler whose target is the Autoscaler itself; empty: none.
        has_other_count: whether `spec.replicas` is set.
    """
    if scaler:
        message = f"HorizontalPodAutoscaler {scaler} scales the same target: the count is left to it"
        return Condition("ScalingActive", "False", "AnotherScaler", message)
    if is_contested:
        message = (
            f"another writer changed the count {MOST_CHANGES} times within {WINDOW_SECONDS / 60:.0f} minutes:"
            " it is left to them"
        )
        return Condition("ScalingActive", "False", "AnotherScaler", message)
    if not is_managed:
        writer = f"HorizontalPodAutoscaler {own_scaler}" if own_scaler else "another autoscaler"
        message = f"the count follows spec.replicas, which {writer} writes (managed: false)"
        return Condition("ScalingActive", "False", UNMANAGED, message)
    ignored = ""
    if own_scaler or has_other_count:
        writer = f"HorizontalPodAutoscaler {own_scaler}" if own_scaler else "spec.replicas"
        ignored = f"{writer} has no effect: with managed: false it decides the count"
    if mode == OBSERVE:
        message = "decisions are reported, and not carried out" + (f"; {ignored}" if ignored else "")
        return Condition("ScalingActive", "False", OBSERVE, message)
    if ignored:
        return Condition("ScalingActive", "True", "ScalerIgnored", ignored)
    return Condition("ScalingActive", "True", "Scaling", "the count follows the decisions")


def refused(replicas: int, error: Exception) -> Condition:
    """Return the condition `ScalingActive` while the scale subresource refuses the count."""
    message = f"the scale subresource refused {replicas} replicas: {error}"[:MESSAGE_LENGTH]
    return Condition("ScalingActive", "False", "ScaleRefused", message)
