"""The report's JSON, from an experiment and its trials. Pure: the same input gives the same report."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from serving import clock
from serving.objects import Object
from serving.resources.formats import duration
from serving.resources.tuning.load import ExperimentLoad
from tuner.load.level_search import highest_load
from tuner.report import (
    cautions,
    convergence,
    evidence,
    judgement,
    load_curves,
    pareto,
    sensitivity,
    surfaces,
)
from tuner.report.evidence import Evidence
from tuner.report.schema import Answer, Axis, Choice, EarlierExperiment, Question, Report, Spent, TrialRow
from tuner.settings import TunerSettings
from tuner.specs import space
from tuner.trial_record import TrialRecord


def of(
    experiment: Object, trials: Sequence[Object], now: dt.datetime, settings: TunerSettings
) -> dict[str, Any]:
    """Return the report of an experiment, finished or not.

    Args:
        experiment: a ProfilingExperiment object.
        trials: its Trials, in any order.
        now: the time of the report.
        settings: the settings of the tuner that measured the trials.

    Raises:
        SpaceInvalid: the experiment describes no space.
        pydantic.ValidationError: an object is not of its kind.
    """
    read = evidence.read(experiment, trials, settings)
    answer = judgement.answer(read)
    chosen = answer.choice
    data = convergence.search_data(read)
    report = Report(
        generated_at=clock.rfc3339(now),
        name=read.name,
        namespace=read.namespace,
        phase=read.status.phase,
        start_time=read.status.start_time,
        completion_time=read.status.completion_time,
        question=question(read),
        learned=[
            EarlierExperiment(experiment=earlier.experiment, weight=earlier.weight)
            for earlier in read.status.learned
        ],
        repeatability=read.status.repeatability,
        answer=answer,
        cautions=cautions.cautions(read, answer, narrow=_has_narrow_margin(data, answer)),
        prices=sensitivity.prices(read, chosen) if chosen else [],
        bounds=sensitivity.bounds(read, chosen) if chosen else [],
        fronts=pareto.fronts(read),
        model=surfaces.model(read, data, chosen or _nearest(answer)),
        steps=convergence.steps(read, convergence.expected_regrets(data)),
        trials=[_row(row) for row in sorted([*read.rows, *read.stale], key=lambda row: row.spec.number)],
        courses=load_curves.courses(read, answer),
        spent=_spent(read),
    )
    body: dict[str, Any] = report.model_dump(by_alias=True, mode="json")
    return body


def _has_narrow_margin(data: convergence.SearchData, answer: Answer) -> bool:
    if answer.kind != "Recommended" or answer.choice is None:
        return False
    return convergence.has_narrow_margin(data, answer.choice)


def _nearest(answer: Answer) -> Choice | None:
    return answer.obstacle.nearest if answer.obstacle else None


def question(read: Evidence) -> Question:
    """Return the question of the experiment."""
    spec = read.spec
    load, objective = spec.load, spec.objective
    return Question.model_validate(
        {
            "inference": spec.target.inference or "",
            "predictor": spec.target.predictor or "",
            "modelVersion": spec.target.model_version or "",
            "framework": spec.target.framework or "",
            "metric": objective.objective_metric_name,
            "direction": objective.type,
            "rate": _number(objective.rate),
            "percentile": objective.percentile,
            "constraints": [evidence.bound(constraint).model_dump() for constraint in spec.constraints],
            "axes": [_axis(axis) for axis in read.space.axes],
            "specs": read.space.size,
            "mode": load.mode,
            "requests": _requests(load),
            "levels": [float(level) for level in load.levels],
            "maxLevel": _number(load.max_level),
            "windowSeconds": load.window_seconds,
            "probeSeconds": load.window_seconds * highest_load.PROBE_SHARE,
            "warmupSeconds": load.warmup_seconds,
            "settleSeconds": load.warmup_seconds * highest_load.SETTLE_SHARE,
            "prices": sensitivity.given_prices(read),
            "gpuMemory": spec.prices.gpu_memory or "",
            "trials": spec.max_num_trials,
            "seconds": duration.seconds(spec.max_duration) if spec.max_duration else None,
            "cost": _number(spec.max_cost),
            "parallelism": spec.parallelism,
            "algorithm": spec.algorithm.algorithm_name,
            "seed": spec.algorithm.seed,
            "warmStart": spec.warm_start.enabled,
            "machine": "; ".join(sorted({row.status.machine for row in read.rows if row.status.machine})),
        }
    )


def _requests(load: ExperimentLoad) -> str:
    """Return the source of the requests."""
    if load.request_template:
        return "template"
    if load.requests:
        return "recorded"
    if load.chat:
        return "chat"
    return "locustfile" if load.locustfile else "model"


def _axis(axis: space.SpaceAxis) -> Mapping[str, Any]:
    return Axis(
        category=axis.category,
        name=axis.name,
        label=axis.label,
        values=list(axis.values),
        positions=list(axis.positions),
        ordered=axis.ordered,
    ).model_dump()


def _number(text: str | None) -> float | None:
    return float(text) if text is not None else None


def _row(row: TrialRecord) -> TrialRow:
    spec, status = row.spec, row.status
    return TrialRow(
        name=row.name,
        number=spec.number,
        purpose=spec.purpose,
        spec=row.index,
        settings=spec.settings,
        phase=status.phase,
        reason=status.reason,
        message=status.message,
        cost_per_hour=spec.cost_per_hour,
        batch=spec.batch,
        objective=row.objective,
        meets=row.meets,
        result=status.result,
        windows=status.windows,
        notes=status.notes,
        restarts=status.restarts,
        start_seconds=status.start_seconds,
        seconds=status.seconds,
    )


def _spent(read: Evidence) -> Spent:
    status = read.status
    return Spent(
        trials=status.trials.total,
        succeeded=status.trials.succeeded,
        stopped_early=status.trials.stopped_early,
        failed=status.trials.failed,
        running=status.trials.running,
        seconds=status.spent_seconds,
        cost=status.spent_cost,
        expected_regret=status.expected_regret,
    )
