"""What one fault cost its clients, from the answers to their requests. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rig.faults.load import ServiceAnswer
from rig.faults.signs import FaultSign

SLOW_SECONDS = 1.0


@dataclass(frozen=True)
class FaultOutcome:
    """One fault; times are in seconds from its beginning."""

    subject: str
    action: str
    requests: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    """Requests without a 200, by Inference and status; 0 is an error of the connection."""
    errors: Mapping[str, int] = field(default_factory=dict)
    slow: int = 0
    """Requests with a 200 after more than `SLOW_SECONDS`."""
    longest: float = 0.0
    """Seconds until the last answer to a request."""
    back: float = 0.0
    """When the last request was sent that failed or was slow; 0 without one."""
    signs: Sequence[FaultSign] = ()
    """Conditions, Events and log lines that report the fault, oldest first."""
    restored: float | None = None
    """When the product was healthy again; None: not in time."""
    left: str = ""
    """The problem that remained at the end."""
    skipped: str = ""
    """Why the fault was not tried."""

    @property
    def failures(self) -> int:
        return sum(self.failed.values())


def is_bad(answer: ServiceAnswer) -> bool:
    """Whether a request failed or was slow."""
    return answer.status != 200 or answer.latency > SLOW_SECONDS


def outcome(
    subject: str,
    action: str,
    begin: float,
    answers: Sequence[ServiceAnswer],
    signs: Sequence[FaultSign],
    *,
    restored: float | None,
    left: str,
) -> FaultOutcome:
    """Return the outcome of a fault.

    Args:
        subject: the process or resource that the fault is about.
        action: the signal, or the state that the resource was in.
        begin: the fault's beginning, on the clock of `answers` and `signs`.
        answers: to the requests since then.
        signs: conditions, Events and log lines since then.
        restored: when the product was healthy again, on the same clock.
        left: the problem that remained at the end.
    """
    bad = [answer for answer in answers if is_bad(answer)]
    failed = [answer for answer in bad if answer.status != 200]
    return FaultOutcome(
        subject,
        action,
        requests=len(answers),
        failed=_counts(f"{answer.service} {answer.status}" for answer in failed),
        errors=_counts(answer.error for answer in failed),
        slow=len(bad) - len(failed),
        longest=max((answer.latency for answer in answers), default=0.0),
        back=max((answer.at - begin for answer in bad), default=0.0),
        signs=tuple(sign._replace(at=sign.at - begin) for sign in signs),
        restored=None if restored is None else restored - begin,
        left=left,
    )


def _counts(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words))
