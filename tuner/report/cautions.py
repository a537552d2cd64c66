"""The cautions of a report: reasons for doubt, from the notes of trials and from the answer."""

from collections import defaultdict
from collections.abc import Sequence

from tuner.observation import CAUSES
from tuner.report import evidence as ev
from tuner.report import judgement, sensitivity
from tuner.report.evidence import Evidence
from tuner.report.schema import Answer, Caution, Choice
from tuner.trial_record import TrialRecord

_NOTED = ("GeneratorLimited", "LimitNotEnforced", "NotSteady")


def cautions(evidence: Evidence, answer: Answer, *, narrow: bool) -> list[Caution]:
    """Return the cautions, those about the answer first.

    Args:
        evidence: the experiment.
        answer: the answer of the report.
        narrow: another measurement of the recommended spec may break a constraint.
    """
    about = [Caution(code="NarrowMargin", trials=answer.choice.trials)] if narrow and answer.choice else []
    collected = [*about, *_of_answer(evidence, answer), *_noted(evidence.rows)]
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
        collected += _of_today(evidence, answer.current)
    return collected


def _of_today(evidence: Evidence, current: Choice | None) -> list[Caution]:
    """Return the cautions about an unknown saving of the recommendation."""
    if current is not None:
        unknown = current.cost_per_hour is None and sensitivity.given_prices(evidence)
        return [Caution(code="CurrentCostUnknown")] if unknown else []
    failed = [row for row in evidence.rows if row.spec.purpose == "Baseline" and row.status.reason in CAUSES]
    if failed:
        return [Caution(code="CurrentDidNotRun", trials=[row.name for row in failed])]
    return [Caution(code="CurrentNotMeasured")]


def _beaten_by_today(evidence: Evidence, answer: Answer) -> bool:
    """Return whether today's spec is outside the space, allowed, and surely better than the space's best.

    The search has already judged a spec within the space.
    """
    current, against = answer.current, answer.against_current
    if current is None or against is None or current.spec is not None:
        return False
    return against.verdict == "Worse" and ev.allowed(evidence, current)


def _noted(rows: Sequence[TrialRecord]) -> list[Caution]:
    """Return one caution for each kind of note, with its trials; if the texts differ, with the first."""
    noted: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        for note in row.status.notes:
            code, _, detail = note.partition(":")
            if code in _NOTED:
                noted[code, detail.strip()].append((row.name, detail.strip()))
            else:
                noted["Note", code].append((row.name, note))
    order = [*_NOTED, "Note"]
    return [
        Caution.model_validate(
            {
                "code": code,
                "trials": [name for name, _ in noted_by],
                "detail": _together([detail for _, detail in noted_by]),
            }
        )
        for (code, _), noted_by in sorted(
            noted.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
        )
    ]


def _together(details: Sequence[str]) -> str:
    return details[0] if len(set(details)) == 1 else f"{details[0]} (and the like)"
