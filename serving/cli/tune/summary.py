"""The tables of `slipway tune status` and `describe` for an experiment and its trials. Pure."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from rich.filesize import decimal

from serving.cli.output import tables
from serving.cli.output.tables import TextTable
from serving.objects import Object
from serving.report_pages import formatting
from serving.resources.formats import ages
from serving.resources.kubernetes import conditions
from serving.resources.tuning.experiment import (
    Constraint,
    Objective,
    ProfilingExperimentSpec,
    Setting,
)
from serving.resources.tuning.trial import FINISHED, Estimate
from tuner import notation, settled
from tuner.constraints import bound_of
from tuner.report.text import measure, phrases
from tuner.report.text.measure import ObjectiveMeasure
from tuner.settled import Doubt

DEFAULT_MAX_TRIALS: int = ProfilingExperimentSpec.model_fields["max_num_trials"].default
"""The most trials of an experiment that does not set `maxNumTrials`."""
_RESULT_COLUMNS = ("Cost/h", "Result", "Load", "Req/s", "P99", "Meets", "Memory", "Took", "Notes")


def status(experiment: Object, trials: Sequence[Object], now: datetime) -> str:
    """Return the tables of an experiment: progress, best spec, running trials, warm start and reason."""
    parts = [
        tables.text(*progress(experiment, trials, now)),
        best(experiment),
        running(experiment, trials, now),
        learned(experiment),
        tables.printable_lines(reason(experiment)),
    ]
    return "\n\n".join(part for part in parts if part)


def progress(experiment: Object, trials: Sequence[Object], now: datetime) -> TextTable:
    """Return the table with the row of an experiment: phase, spent budget and goal."""
    spec, status = experiment["spec"], experiment.get("status") or {}
    done = sum(is_over(trial) for trial in trials)
    seconds = elapsed(experiment, now)
    cost = f"{status.get('spentCost', 0):.3g}" + (f" of {spec['maxCost']}" if spec.get("maxCost") else "")
    time = ages.human(seconds) if seconds is not None else None
    if time and (longest := spec.get("maxDuration")):
        time += f" of {longest}"
    regret = status.get("expectedRegret", 1)  # 1: no spec has run, so that nothing is known
    row = [
        experiment["metadata"]["name"],
        phase(experiment),
        status.get("specs"),
        f"{done} of {spec.get('maxNumTrials', DEFAULT_MAX_TRIALS)}",
        time,
        cost,
        f"{regret:.1%}" if done and regret < 1 else None,
        goal(spec),
    ]
    return TextTable(["Name", "Phase", "Specs", "Trials", "Time", "Spent", "Regret", "Goal"], [row])


def best(experiment: Object) -> str:
    """Return a table of the recommended spec, or without a recommendation of the best spec so far.

    A second row is the alternative: the spec with the best objective among the others of the same price. The
    line below the table is the rule that decided between the two. Empty without a measured spec.
    """
    status = experiment.get("status") or {}
    best_spec = status.get("recommendation") or status.get("best")
    if not best_spec:
        return ""
    alternative = best_spec.get("alternative")
    shown_specs = [best_spec, alternative] if alternative else [best_spec]
    title = "Recommended" if status.get("recommendation") else "Best so far"
    headers = [title if why_unsettled(experiment) is None else "Not settled"]
    headers += [setting["name"] for setting in best_spec.get("settings") or []]
    headers += ["Cost/h", "Today", objective_measure(experiment["spec"]).label]
    current_cost = best_spec.get("currentCostPerHour")
    costs = [f"{best_spec.get('costPerHour', 0):.4g}", f"{current_cost:.4g}" if current_cost else None]
    rows = [_best_row(experiment, spec, costs) for spec in shown_specs]
    is_constrained = bool(experiment["spec"].get("constraints"))
    if is_constrained and best_spec.get("probability") is not None:
        headers.append("Meets next time")
        for row, spec in zip(rows, shown_specs, strict=True):
            row.append(_plain(phrases.chance(spec["probability"])))
    rule = f"\n{phrases.rule(alternative['rule'], constrained=is_constrained)}" if alternative else ""
    return tables.text(headers, rows) + rule


def _best_row(experiment: Object, spec: Object, costs: Sequence[str | None]) -> list[object]:
    """Return the row of a spec of `best`; `costs` are the hourly costs of the spec and of today's spec."""
    values = [setting["value"] for setting in spec.get("settings") or []]
    return [spec.get("trial"), *values, *costs, objective(experiment["spec"], spec)]


def why_unsettled(experiment: Object) -> Doubt | None:
    """Return why the recommendation of an experiment is not settled; None if it is, or if there is none."""
    status = experiment.get("status") or {}
    recommendation = status.get("recommendation")
    if not recommendation:
        return None
    return settled.why_unsettled(
        trials=(status.get("trials") or {}).get("total", 0),
        specs=status.get("specs", 0),
        regret=status.get("expectedRegret", 1),
        probability=recommendation.get("probability"),
    )


def unsettled_sentence(unsettled: Doubt) -> str:
    """Return `Not settled after 6 trials: expected regret 46 %; run 13 more trials`."""
    return _plain(f"{phrases.unsettled(unsettled)}: {phrases.unsettled_reasons(unsettled)}")


def running(experiment: Object, trials: Iterable[Object], now: datetime) -> str:
    """Return a table of the running trials; empty without any."""
    current = [trial for trial in trials if not is_over(trial)]
    if not current or has_ended(experiment):
        return ""
    ordered = sorted(current, key=trial_number)
    names = setting_names(ordered)
    rows = []
    for trial in ordered:
        windows = (trial.get("status") or {}).get("windows") or []
        last = windows[-1] if windows else {}
        rows.append(
            [
                trial["metadata"]["name"],
                *setting_values(trial, names),
                trial_phase(trial),
                ages.since(_start_time(trial), now),
                f"{last['level']:g}" if last else None,
                throughput(last),
                p99_latency(last),
            ]
        )
    return tables.text(["Now", *names, "Stage", "For", "Load", "Req/s", "P99"], rows)


def trials_table(trials: Iterable[Object]) -> str:
    """Return a table of all trials: the highest load within the constraints, and the outcome."""
    ordered = sorted(trials, key=trial_number)
    names = setting_names(ordered)
    rows = []
    for trial in ordered:
        status = trial.get("status") or {}
        window = status.get("result") or {}
        memory = (window.get("usage") or {}).get("memoryBytes")
        rows.append(
            [
                trial["spec"]["number"],
                trial["spec"].get("purpose", "Explore"),
                *setting_values(trial, names),
                f"{trial['spec'].get('costPerHour', 0):.4g}",
                status.get("reason") or trial_phase(trial),
                f"{window['level']:g}" if window else None,
                throughput(window),
                p99_latency(window),
                window.get("meets"),
                decimal(memory) if memory else None,
                ages.human(status["seconds"]) if status.get("seconds") else None,
                ", ".join(note.partition(":")[0] for note in status.get("notes") or []) or "-",
            ]
        )
    headers = ["No", "Purpose", *names, *_RESULT_COLUMNS]
    return tables.text(headers, rows) if rows else "<none>"


def learned(experiment: Object) -> str:
    """Return the weights of the earlier experiments that the search learns from; empty without any."""
    earlier_experiments = (experiment.get("status") or {}).get("learned") or []
    parts = [
        f"{earlier['experiment']} {earlier['weight']:.0%}"
        if earlier["weight"] > 0
        else f"{earlier['experiment']} dropped"
        for earlier in earlier_experiments
    ]
    return f"Warm start: {', '.join(parts)}" if parts else ""


def reason(experiment: Object) -> str:
    """Return reason and message of the condition Ready; empty without the condition."""
    ready = conditions.find((experiment.get("status") or {}).get("conditions"), "Ready") or {}
    return ": ".join(part for part in (ready.get("reason"), ready.get("message")) if part)


def phase(experiment: Object) -> str:
    """Return the phase of the current generation: Pending if only an earlier one has ended."""
    status = experiment.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    is_old = status.get("observedGeneration", 0) < experiment["metadata"].get("generation", 0)
    return "Pending" if phase in FINISHED and is_old else phase


def has_ended(experiment: Object) -> bool:
    """Return whether the experiment has ended in its current generation."""
    return phase(experiment) in FINISHED


def goal(spec: Object) -> str:
    """Return objective and constraints of an experiment's spec: `least p50 latency, error rate <= 1 %`."""
    constraints = [Constraint.model_validate(constraint) for constraint in spec.get("constraints") or []]
    bounds = [_plain(notation.constraint(constraint, bound_of(constraint))) for constraint in constraints]
    objective = objective_measure(spec)
    return ", ".join([f"{'least' if objective.less_is_better else 'most'} {objective.label}", *bounds])


def objective_measure(spec: Object) -> ObjectiveMeasure:
    """Return label and unit of the objective of an experiment's spec, as in the report."""
    return measure.of_objective(Objective.model_validate(spec.get("objective") or {}))


def objective(spec: Object, measured_spec: Object) -> str | None:
    """Return the objective of a measured spec with its 95 % interval; None without one.

    `spec` is that of the experiment; `measured_spec` is a recommendation, an alternative or the best spec.
    """
    value, low, high = (measured_spec.get(key, 0) for key in ("objective", "low", "high"))
    estimate = objective_measure(spec).estimate(Estimate(value=value, low=low, high=high))
    return interval(estimate, objective_measure(spec).write) if estimate else None


def interval(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Return `114 (111 to 117)`, with ordinary spaces."""
    return _plain(notation.interval(estimate, write))


def _plain(text: str) -> str:
    """Replace no-break spaces by ordinary ones."""
    return text.replace("\u00a0", " ")


def elapsed(experiment: Object, now: datetime) -> float | None:
    """Return the seconds from the experiment's start to its end, or to now; None before its start.

    The time in which it was suspended does not count.
    """
    status = experiment.get("status") or {}
    if not status.get("startTime"):
        return None
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    suspended = float(status.get("suspendedSeconds") or 0)
    if status.get("suspendTime"):
        suspended += (end - datetime.fromisoformat(status["suspendTime"])).total_seconds()
    return (end - datetime.fromisoformat(status["startTime"])).total_seconds() - suspended


def is_over(trial: Object) -> bool:
    return trial_phase(trial) in FINISHED


def trial_phase(trial: Object) -> str:
    return str((trial.get("status") or {}).get("phase") or "Pending")


def trial_number(trial: Object) -> int:
    return int(trial["spec"]["number"])


def setting_names(trials: Iterable[Object]) -> list[str]:
    """Return the names of the settings that the trials have, each once."""
    return list(dict.fromkeys(s["name"] for trial in trials for s in trial["spec"].get("settings") or []))


def setting_values(trial: Object, names: Iterable[str]) -> list[object]:
    """Return the values of a trial's settings by name; None for settings that it lacks."""
    settings = {s["name"]: s["value"] for s in trial["spec"].get("settings") or []}
    return [settings.get(name) for name in names]


def settings_words(settings: Iterable[Object]) -> str:
    """Return `cpu=500m memory=512Mi`; without settings, `today's spec`."""
    return notation.spec([Setting.model_validate(setting) for setting in settings])


def throughput(window: Object) -> str | None:
    """Return the requests per second of a window with their 95 % interval; None without a window."""
    throughput = window.get("throughput")
    if not throughput:
        return None
    return interval(Estimate.model_validate(throughput), formatting.number)


def p99_latency(window: Object) -> str | None:
    """Return the p99 latency of a window; None without one."""
    for latency in window.get("latencies") or []:
        if (latency["metric"], latency["percentile"]) == ("latency", 99):
            return _plain(formatting.duration(latency["value"]))
    return None


def _start_time(trial: Object) -> str:
    status = trial.get("status") or {}
    return str(status.get("startTime") or trial["metadata"].get("creationTimestamp") or "")
