"""The status of a trial at each step of its measurement. Pure."""

import datetime as dt
from collections.abc import Awaitable, Callable

from serving import clock
from serving.objects import Object
from serving.resources.base import ConditionStatus, in_six_digits
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import Condition
from serving.resources.tuning.trial import FINISHED, Reason, TrialStatus, Window

Report = Callable[[Object, TrialStatus], Awaitable[None]]
"""Writes a trial's status, and retries until that succeeds."""
_WITH_RESULT = ("Measured", "CannotBeatBest", "BreaksConstraint")
"""Reasons of a trial that has a result."""


def begun(notes: list[str], now: dt.datetime) -> TrialStatus:
    """Return the status of a trial that begins, without values of an earlier attempt."""
    return TrialStatus(phase="Starting", notes=notes, start_time=clock.rfc3339(now))


def ended(
    status: TrialStatus,
    reason: Reason,
    message: str,
    *,
    result: Window | None,
    notes: list[str],
    seconds: float,
    now: dt.datetime,
) -> TrialStatus:
    """Return the status of an ended trial, with `notes` after those of `status`; it took `seconds`."""
    return status.model_copy(
        update={
            "phase": "Succeeded" if reason in _WITH_RESULT else "Failed",
            "reason": reason,
            "message": message,
            "result": result,
            "notes": list(dict.fromkeys([*status.notes, *notes])),
            "seconds": round(seconds, 3),
            "completion_time": clock.rfc3339(now),
        }
    )


def as_written(trial: Object, status: TrialStatus, now: dt.datetime) -> Object:
    """Return the whole status as JSON, with its conditions."""
    generation = trial["metadata"].get("generation", 1)
    over = status.phase in FINISHED
    ready = Condition(
        "Ready",
        "True" if status.phase == "Succeeded" else "False",
        status.reason if over else status.phase,
        status.message,
    )
    old = (trial.get("status") or {}).get("conditions")
    merged = conditions.merge(old, [ready], generation=generation, now=clock.rfc3339(now))
    complete = status.model_copy(
        update={
            "observed_generation": generation,
            "conditions": [ConditionStatus.model_validate(condition) for condition in merged],
        }
    )
    body: Object = in_six_digits(complete.model_dump(by_alias=True, exclude_none=True))
    # Unknown times are empty strings, which the schema does not allow.
    return {key: value for key, value in body.items() if value != ""}
