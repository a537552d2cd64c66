"""How many replicas a target should have. Pure.

Within its bounds, the count that it has; with a minimum of 0, none once it has been idle, and one as soon as a request
waits for it. What is not known never takes replicas away.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from serving.resources import names


@dataclass(frozen=True)
class Bounds:
    """What is asked of the target."""

    minimum: int
    maximum: int
    idle_timeout: dt.timedelta


@dataclass(frozen=True)
class Demand:
    """What one reporter says of the requests to the target."""

    reporter: str
    in_flight: int
    last_request: dt.datetime | None


@dataclass(frozen=True)
class Target:
    """What is to be sized."""

    wanted: int
    ready: int
    up_since: dt.datetime | None
    """Since when it has had the replicas that it should have; None while it has not."""


@dataclass(frozen=True)
class Decision:
    """A replica count and why: a condition's reason, and words that stay the same while nothing changes."""

    replicas: int
    reason: str
    message: str
    look_again: dt.timedelta | None = None
    """When it may be another one though nothing was heard."""


LOOK_AGAIN = dt.timedelta(seconds=5)
"""Where it depends on which gateways are alive, which nobody is told of: as often as they say that they are."""


def decide(
    target: Target, bounds: Bounds, demand: Sequence[Demand], gateways: frozenset[str], now: dt.datetime
) -> Decision:
    """Return the count that the target should have.

    Args:
        target: as it is.
        bounds: of the count.
        demand: of every reporter, also of those that are no more.
        gateways: those that are alive.
        now: the moment.
    """
    if target.wanted > bounds.maximum:
        return Decision(bounds.maximum, "WithinBounds", f"lowered from {target.wanted} to maxReplicas")
    if target.wanted < bounds.minimum:
        return Decision(bounds.minimum, "WithinBounds", f"raised from {target.wanted} to minReplicas")
    if bounds.minimum > 0:
        reason = "FixedCount" if bounds.minimum == bounds.maximum else "WithinBounds"
        return Decision(target.wanted, reason, "within bounds")
    waiting = sum(said.in_flight for said in demand if said.reporter.startswith(names.ACTIVATOR_REPORTER))
    if target.wanted == 0:
        if waiting:
            # One, however many wait: how long the queue is says how slow a start is, not how much work there is.
            return Decision(1, "Woken", "raised from 0: a request waits")
        return Decision(0, "ScaledToZero", "at zero until a request waits")
    return _used(target, bounds, demand, gateways, now, is_waited_for=waiting > 0)


def _used(
    target: Target, bounds: Bounds, demand: Sequence[Demand], gateways: frozenset[str], now: dt.datetime,
    *, is_waited_for: bool,
) -> Decision:  # fmt: skip
    """Return the count of a target that has replicas and may lose them all."""

    def keep(reason: str, message: str, look_again: dt.timedelta | None = None) -> Decision:
        return Decision(target.wanted, reason, message, look_again)

    if target.up_since is None or target.ready == 0:
        return keep("Starting", "its replicas are not ready yet")
    prefix = names.GATEWAY_REPORTER
    said = {d.reporter.removeprefix(prefix): d for d in demand if d.reporter.startswith(prefix)}
    if not gateways:
        return keep("InUse", "no gateway is alive to say that it is idle", LOOK_AGAIN)
    if silent := sorted(gateways - said.keys()):
        return keep("InUse", f"gateway {silent[0]} has not said whether it is idle", LOOK_AGAIN)
    if is_waited_for or any(said[name].in_flight for name in gateways):
        return keep("InUse", "it has requests", LOOK_AGAIN)
    moments = [d.last_request for d in demand if d.last_request is not None]
    due = max([*moments, target.up_since]) + bounds.idle_timeout
    if now < due:
        return keep("Idle", f"it has no requests; to zero at {due:%H:%M:%S} UTC if that stays so", due - now)
    seconds = bounds.idle_timeout.total_seconds()
    return Decision(0, "ScaledToZero", f"lowered from {target.wanted} to 0: no request for {seconds:g} s")
