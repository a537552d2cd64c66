"""What `slipway tune status` and `describe` show of an experiment and its trials. Pure: takes objects and `now`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from rich.filesize import decimal

from serving.cli.output import tables
from serving.objects import Object
from serving.pages import figures
from serving.resources import ages, conditions
from serving.resources.experiment import Objective
from serving.resources.trial import FINISHED, Estimate
from tuner.report.text import measure, phrases
from tuner.report.text.measure import Measure

"""Phases of an experiment, and of a trial, after which nothing comes."""
_METRICS: Mapping[str, str] = {"latency": "latency", "ttft": "TTFT", "itl": "ITL", "errorRate": "errors"}


def status(experiment: Object, trials: Sequence[Object], now: datetime) -> str:
    """Return how far the experiment is: itself, the best spec, and what runs; then why it is where it is."""
    parts = [
        tables.text(*progress(experiment, trials, now)),
        best(experiment),
        running(experiment, trials, now),
        learned(experiment),
        words(experiment),
    ]
    return "\n\n".join(part for part in parts if part)


def progress(
    experiment: Object, trials: Sequence[Object], now: datetime
) -> tuple[list[str], list[list[object]]]:
    """Return the experiment's own row: what of its budget is used, and what it looks for."""
    spec, said = experiment["spec"], experiment.get("status") or {}
    done = sum(is_over(trial) for trial in trials)
    took = elapsed(experiment, now)
    cost = f"{said.get('spentCost', 0):.3g}" + (f" of {spec['maxCost']}" if spec.get("maxCost") else "")
    time = ages.human(took) if took is not None else None
    if time and (longest := spec.get("maxDuration")):
        time += f" of {longest}"
    regret = said.get("expectedRegret", 1)
    row = [
        experiment["metadata"]["name"], phase(experiment), said.get("specs"),
        f"{done} of {spec.get('maxNumTrials', 20)}", time, cost,
        f"{regret:.1%}" if done and regret < 1 else None, goal(spec),
    ]  # fmt: skip
    return ["Name", "Phase", "Specs", "Trials", "Time", "Spent", "Regret", "Goal"], [row]


def best(experiment: Object) -> str:
    """Return the best spec so far, or the one that is recommended, as a table; empty where there is none."""
    said = experiment.get("status") or {}
    found, title = said.get("recommendation"), "Recommended"
    if not found:
        found, title = said.get("best"), "Best so far"
    if not found:
        return ""
    settings, today = found.get("settings") or [], found.get("currentCostPerHour")
    headers = [title, *(s["name"] for s in settings), "Cost/h", "Today", measured(experiment["spec"]).label]
    row: list[object] = [
        found.get("trial"), *(s["value"] for s in settings), f"{found.get('costPerHour', 0):.4g}",
        f"{today:.4g}" if today else None, worth(experiment["spec"], found),
    ]  # fmt: skip
    return tables.text(headers, [row])


def running(experiment: Object, trials: Iterable[Object], now: datetime) -> str:
    """Return the trials that run, with their stage; empty where none does."""
    current = [trial for trial in trials if not is_over(trial)]
    if not current or has_ended(experiment):
        return ""
    settings = current[0]["spec"].get("settings") or []
    rows = []
    for trial in sorted(current, key=number):
        windows = (trial.get("status") or {}).get("windows") or []
        last = windows[-1] if windows else {}
        rows.append([
            trial["metadata"]["name"], *values(trial, [s["name"] for s in settings]), stage(trial),
            ages.since(_begun(trial), now), f"{last['level']:g}" if last else None, throughput(last), tail(last),
        ])  # fmt: skip
    return tables.text(["Now", *(s["name"] for s in settings), "Stage", "For", "Load", "Req/s", "P99"], rows)


def trials_table(trials: Iterable[Object]) -> str:
    """Return all trials, by number: what was measured at the highest load that met the constraints, and why each ended."""
    ordered = sorted(trials, key=number)
    names = list(dict.fromkeys(s["name"] for t in ordered for s in t["spec"].get("settings") or []))
    rows = []
    for trial in ordered:
        said = trial.get("status") or {}
        window = said.get("result") or {}
        memory = (window.get("usage") or {}).get("memoryBytes")
        rows.append([
            trial["spec"]["number"], trial["spec"].get("purpose", "Explore"), *values(trial, names),
            f"{trial['spec'].get('costPerHour', 0):.4g}", said.get("reason") or stage(trial),
            f"{window['level']:g}" if window else None, throughput(window), tail(window), window.get("meets"),
            decimal(memory) if memory else None, ages.human(said["seconds"]) if said.get("seconds") else None,
            ", ".join(note.partition(":")[0] for note in said.get("notes") or []) or "-",
        ])  # fmt: skip
    headers = ["No", "Purpose", *names, "Cost/h", "Result", "Load", "Req/s", "P99", "Meets", "Memory", "Took", "Notes"]  # fmt: skip
    return tables.text(headers, rows) if rows else "<none>"


def learned(experiment: Object) -> str:
    """Return which earlier experiments are believed, and how much; empty where there are none."""
    said = (experiment.get("status") or {}).get("learned") or []
    parts = [
        f"{one['experiment']} {one['weight']:.0%}" if one["weight"] > 0 else f"{one['experiment']} dropped"
        for one in said
    ]
    return f"Warm start: {', '.join(parts)}" if parts else ""


def words(experiment: Object) -> str:
    """Return the reason and message of the condition Ready; empty where nobody has said anything."""
    said = conditions.find((experiment.get("status") or {}).get("conditions"), "Ready") or {}
    return ": ".join(part for part in (said.get("reason"), said.get("message")) if part)


def phase(experiment: Object) -> str:
    """Return its phase; the end of an earlier spec is none of the newest one."""
    said = experiment.get("status") or {}
    found = str(said.get("phase") or "Pending")
    is_old = said.get("observedGeneration", 0) < experiment["metadata"].get("generation", 0)
    return "Pending" if found in FINISHED and is_old else found


def has_ended(experiment: Object) -> bool:
    """Whether nothing more comes of its newest spec."""
    return phase(experiment) in FINISHED


def goal(spec: Object) -> str:
    """Return what is looked for, and under which constraints: `least p50 latency, errors <= 1%`."""
    bounds = [
        f"{_METRICS.get(c['metric'], c['metric'])} <= {c['atMost']}"
        if c["metric"] == "errorRate"
        else f"p{c.get('percentile', 99)} {_METRICS.get(c['metric'], c['metric'])} <= {c['atMost']}"
        for c in spec.get("constraints") or []
    ]
    shown = measured(spec)
    return ", ".join([f"{'least' if shown.less_is_better else 'most'} {shown.label}", *bounds])


def measured(spec: Object) -> Measure:
    """Return how the objective is shown, in the unit that people pay or wait in, as in the report."""
    return measure.of_objective(Objective.model_validate(spec.get("objective") or {}))


def worth(spec: Object, recommendation: Object) -> str | None:
    """Return the objective of a spec with its 95 % interval; None where it is not defined."""
    value, low, high = (recommendation.get(key, 0) for key in ("objective", "low", "high"))
    found = measured(spec).estimate(Estimate(value=value, low=low, high=high))
    return interval(found, measured(spec).write) if found else None


def interval(found: Estimate, write: Callable[[float], str]) -> str:
    """Return `114 (111 to 117)`, with ordinary spaces."""
    return phrases.interval(found, write).replace("\u00a0", " ")


def elapsed(experiment: Object, now: datetime) -> float | None:
    """Return the seconds from the experiment's start to its end, or to now; None where it has not begun."""
    said = experiment.get("status") or {}
    if not said.get("startTime"):
        return None
    end = datetime.fromisoformat(said["completionTime"]) if said.get("completionTime") else now
    return (end - datetime.fromisoformat(said["startTime"])).total_seconds()


def is_over(trial: Object) -> bool:
    return stage(trial) in FINISHED


def stage(trial: Object) -> str:
    return str((trial.get("status") or {}).get("phase") or "Pending")


def number(trial: Object) -> int:
    return int(trial["spec"]["number"])


def values(trial: Object, names: Iterable[str]) -> list[object]:
    """Return the trial's settings by these names; what it does not set is None."""
    found = {s["name"]: s["value"] for s in trial["spec"].get("settings") or []}
    return [found.get(name) for name in names]


def settings_words(settings: Iterable[Object]) -> str:
    """Return `cpu=500m memory=512Mi`; of no settings, that it is the spec of today."""
    return " ".join(f"{s['name']}={s['value']}" for s in settings) or "today's spec"


def throughput(window: Object) -> str | None:
    """Return the requests per second of a window with their 95 % interval; None where there is no window."""
    found = window.get("throughput")
    if not found:
        return None
    return interval(Estimate.model_validate(found), figures.number)


def tail(window: Object) -> str | None:
    """Return the p99 latency of a window; None where it has none."""
    for latency in window.get("latencies") or []:
        if (latency["metric"], latency["percentile"]) == ("latency", 99):
            return figures.duration(latency["value"]).replace("\u00a0", " ")
    return None


def _begun(trial: Object) -> str:
    said = trial.get("status") or {}
    return str(said.get("startTime") or trial["metadata"].get("creationTimestamp") or "")
