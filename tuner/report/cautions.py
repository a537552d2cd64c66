"""The cautions of a report: reasons for doubt, from the notes of trials and from the answer."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tuner.observation import CAUSES
from tuner.report import evidence as ev
from tuner.report import judgement, sensitivity
from tuner.report.evidence import Evidence
from tuner.report.schema import Answer, Caution, Choice
from tuner.trial_record import TrialRecord

_NOTED = ("GeneratorLimited", "LimitNotEnforced", "NotSteady")
"""Prefixes of notes that have a caution of their own, in the order of the report."""


class _NoteKey(NamedTuple):
    """The notes of one caution."""

    code: str
    """Of the caution: a prefix in _NOTED, or Note."""
    kind: str
    """The detail of a note with a prefix in _NOTED; of any other note its prefix."""


class _TrialNote(NamedTuple):
    trial: str
    detail: str
    """The note without its prefix if that is in _NOTED, else the whole note."""


def cautions(evidence: Evidence, answer: Answer, *, narrow: bool) -> list[Caution]:
    """Return the cautions, those about the answer first.

    Args:
        evidence: the experiment.
        answer: the answer of the report.
        narrow: whether another measurement of the recommended spec may break a constraint.
    """
    collected: list[Caution] = []
    if narrow and answer.choice is not None:
        collected.append(Caution(code="NarrowMargin", trials=answer.choice.trials))
    collected += _of_answer(evidence, answer)
    collected += _noted(evidence.rows)
    if evidence.stale:
        collected.append(Caution(code="ModelChanged", trials=[row.name for row in evidence.stale]))
    machines = {row.status.machine for row in evidence.rows if row.status.machine}
    if len(machines) > 1:
        collected.append(Caution(code="SeveralMachines", detail="; ".join(sorted(machines))))
    return collected


def _of_answer(evidence: Evidence, answer: Answer) -> list[Caution]:
    collected: list[Caution] = []
    if answer.kind == "Unfinished":
        collected.append(Caution(code="Unfinished"))
    if answer.choice is not None:
        collected += _of_choice(evidence, answer, answer.choice)
    if not sensitivity.given_prices(evidence):
        collected.append(Caution(code="NoPrices"))
    current = answer.current
    if current is not None and current.spec is None:
        collected.append(Caution(code="OutsideMeasured", trials=current.trials))
    return collected


def _of_choice(evidence: Evidence, answer: Answer, chosen: Choice) -> list[Caution]:
    collected: list[Caution] = []
    if chosen.broken:
        collected.append(Caution(code="BrokeConstraint", trials=chosen.broken))
    elif answer.kind == "Recommended" and len(chosen.trials) < 2:
        collected.append(Caution(code="NotConfirmed", trials=chosen.trials))
    ahead = judgement.better(evidence, chosen)
    if ahead:
        names = [choice.trials[-1] for choice in ahead.values()]
        collected.append(Caution(code="MeasuredBetter", trials=names))
    if _beaten_by_today(evidence, answer):
        collected.append(Caution(code="CurrentBetter"))
    if evidence.spec.target.inference is not None:
        collected += _of_saving(evidence, answer.current)
    return collected


def _of_saving(evidence: Evidence, current: Choice | None) -> list[Caution]:
    """Return why the saving against `current`, today's spec, is unknown; empty if it is known."""
    if current is not None:
        unknown = current.cost_per_hour is None and sensitivity.given_prices(evidence)
        return [Caution(code="CurrentCostUnknown")] if unknown else []
    failed = [row for row in evidence.rows if row.spec.purpose == "Baseline" and row.status.reason in CAUSES]
    if failed:
        return [Caution(code="CurrentDidNotRun", trials=[row.name for row in failed])]
    return [Caution(code="CurrentNotMeasured")]


def _beaten_by_today(evidence: Evidence, answer: Answer) -> bool:
    """Return whether today's spec is outside the space, allowed, and surely better than the space's best.

    If today's spec is in the space, the search has already compared it.
    """
    current, against = answer.current, answer.against_current
    if current is None or against is None or current.spec is not None:
        return False
    return against.verdict == "Worse" and ev.allowed(evidence, current)


def _noted(rows: Sequence[TrialRecord]) -> list[Caution]:
    """Return a caution, with its trials, for each different note with a prefix in _NOTED.

    Other notes have one caution for each prefix, with the text of the first note.
    """
    noted: dict[_NoteKey, list[_TrialNote]] = defaultdict(list)
    for row in rows:
        for note in row.status.notes:
            prefix, _, rest = note.partition(":")
            if prefix in _NOTED:
                detail = rest.strip()
                noted[_NoteKey(prefix, detail)].append(_TrialNote(row.name, detail))
            else:
                noted[_NoteKey("Note", prefix)].append(_TrialNote(row.name, note))
    order = [*_NOTED, "Note"]
    return [
        Caution.model_validate(
            {
                "code": key.code,
                "trials": [note.trial for note in noted[key]],
                "detail": _one_detail([note.detail for note in noted[key]]),
            }
        )
        for key in sorted(noted, key=lambda key: (order.index(key.code), key.kind))
    ]


def _one_detail(details: Sequence[str]) -> str:
    return details[0] if len(set(details)) == 1 else f"{details[0]} (and the like)"
