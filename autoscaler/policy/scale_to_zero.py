"""The need of a target that may have no replicas, while it has no requests. Pure."""

import math
from dataclasses import replace

from autoscaler.observation import Replicas
from autoscaler.policy.config import PolicyConfig
from autoscaler.policy.idle import IdleTimes
from autoscaler.policy.need import Need

GRACE_STARTUPS = 2.0
"""Start-up times after the last request, or after the creation of the replica if none has come, for which a
first replica that is not ready yet goes on starting."""


def idle_need(
    need: Need,
    stabilized: int,
    replicas: Replicas,
    idle: IdleTimes,
    config: PolicyConfig,
    *,
    desired_since: float,
    now: float,
    startup: float,
) -> Need:
    """Return the need of a target without requests: its last replica is kept, stopped or started early.

    Args:
        need: the need by the load and the metrics.
        stabilized: replicas that stabilization keeps.
        replicas: current replicas of the target.
        idle: the learned idle times.
        config: configuration of the policy.
        desired_since: Unix seconds of the first decision since which a replica has been desired.
        now: Unix seconds.
        startup: seconds that a start is expected to take.
    """
    idle_limit = config.zero.idle
    may_prewarm = config.zero.prewarm and config.prediction != "Disabled" and idle_limit is None
    if replicas.desired > 0:
        idle_since = idle.last_request
        if idle_since == -math.inf:  # no request has come, and no replica was ready
            # Not the start alone: the start of a replica that is refused, or replaced again and again, never
            # ends.
            idle_since = min((desired_since, *replicas.starting))
        idle_seconds = now - idle_since
        if replicas.ready == 0 and idle_seconds < GRACE_STARTUPS * startup:
            # Clients that gave up ask again: a start that is abandoned each time never ends.
            is_kept, message = True, "the first replica is starting"
        elif idle_limit is not None:
            is_kept = idle_seconds < idle_limit
            message = f"a replica is kept for {idle_limit:g} s after a request"
        else:
            # A replica that would be started again is not removed.
            is_kept = idle.keeps(now, startup, config.risk) or (
                may_prewarm and idle.prewarms(now, startup, config.risk)
            )
            message = "a request is likely enough to keep a replica"
        if not is_kept:
            return replace(need, replicas=0, reason="Idle", message=f"no request for {idle_seconds:.0f} s")
        # Neither a past backlog alone nor stabilization alone keeps a replica of a target without requests.
        count = max(min(need.replicas, stabilized), 1)
        return replace(need, replicas=count, reason="KeepAlive", message=message)
    if may_prewarm and idle.prewarms(now, startup, config.risk):
        return replace(need, replicas=1, reason="Prewarm", message="a request is likely soon")
    return replace(need, replicas=0, reason="Idle", message="no request")
